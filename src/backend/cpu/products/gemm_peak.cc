#include "backend/cpu/products/gemm_peak.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/products/gemm.h"
#include "base/philox.h"
#include "base/team.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper {
namespace {

constexpr double kBudget = 0.45;  // seconds for all products of a rate
constexpr int64_t kLargest = 2048, kSmallest = 64;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::byte[], Free>;

Buffer Allocate(Bytes size) {
  const auto n = static_cast<size_t>(AlignUp(size, 64).v);
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(64, n)));
  TEMPER_CHECK(buffer != nullptr) << n;
  std::fill_n(buffer.get(), n, std::byte{0});  // every page is there before the clock runs
  return buffer;
}

// Numbers in [-1, 1), the same 16 Ki of them over and over.
Buffer AllocateRandom(const TensorType& type) {
  constexpr int64_t kDifferent = 16 << 10;
  const int64_t size = SizeOf(type.dtype), n = type.shape.elements(), different = std::min(n, kDifferent);
  Buffer buffer = Allocate(type.bytes());
  for (int64_t i = 0; i < different; ++i) {
    const float x = 2 * UniformAt({.seed = 1, .name_hash = 0}, i) - 1;
    if (type.dtype == DType::kF32) reinterpret_cast<float*>(buffer.get())[i] = x;
    if (type.dtype == DType::kBF16) reinterpret_cast<bf16*>(buffer.get())[i] = ToBF16(x);
  }
  for (int64_t i = different; i < n; i += different) {
    std::memcpy(buffer.get() + i * size, buffer.get(), static_cast<size_t>(std::min(different, n - i) * size));
  }
  return buffer;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// x w^T of n x n matrices.
struct Product {
  Product(int64_t n, DType dtype, int threads, Isa isa) : flops(2.0 * static_cast<double>(n * n * n)) {
    const TensorType matrix = {dtype, {n, n}};
    KernelSpec spec = {.op = Op::kLinear, .inputs = {matrix, matrix}, .outputs = {matrix}, .threads = threads};
    spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, spec.attributes, threads);
    kernel = std::move(*MakeCpuKernels({.threads = threads, .isa = isa})->Make(spec));
    x = AllocateRandom(matrix);
    w = AllocateRandom(matrix);
    y = Allocate(matrix.bytes());
    workspace = Allocate(spec.workspace);
  }
  double Seconds() {
    std::byte *inputs[] = {x.get(), w.get()}, *outputs[] = {y.get()};
    const auto start = std::chrono::steady_clock::now();
    const Status status = kernel->Run({inputs, outputs, workspace.get()});
    TEMPER_CHECK(status.ok()) << status.message();
    return SecondsSince(start);
  }

  double flops;
  std::unique_ptr<Kernel> kernel;
  Buffer x, w, y, workspace;
};

// One thread's panels, packed from random numbers: as many rows of A as Gemm keeps in the second-level cache, and a
// panel of B.
struct Panels {
  Panels(DType dtype, const TileKernels& t) {
    const int64_t depth = t.depth_bytes / t.element_size;
    steps = depth / t.k_step;
    a_bytes = AlignUp({depth * t.element_size * t.mr}, 64).v + 64;
    const int64_t b_bytes = AlignUp({depth * t.element_size * t.nr}, 64).v;
    tiles = std::max<int64_t>(1, t.a_block_bytes / a_bytes);
    a = Allocate({tiles * a_bytes + kPanelSlack});
    b = Allocate({b_bytes + kPanelSlack});
    out = Allocate({tiles * t.mr * t.nr * 4});
    const Buffer rows = AllocateRandom({dtype, {tiles * t.mr, depth}}),
                 columns = AllocateRandom({dtype, {t.nr, depth}});
    t.pack_k(rows.get(), depth, tiles * t.mr, t.mr, false, depth, a.get(), a_bytes);
    t.pack_k(columns.get(), depth, t.nr, t.nr, true, depth, b.get(), b_bytes);
  }
  void Multiply(const TileKernels& t) const {
    t.strip({.a = a.get(),
             .a_panel_bytes = a_bytes,
             .height = t.mr,
             .row = 0,
             .rows = tiles * t.mr,
             .b = {b.get(), steps},
             .column = 0,
             .columns = t.nr,
             .output = {.out = out.get(), .out_stride = t.nr}});
    if (t.finish != nullptr) t.finish();
  }

  int64_t steps, a_bytes, tiles;
  Buffer a, b, out;
};

// The peak, some milliseconds at a time.
class PeakSampler {
 public:
  PeakSampler(DType dtype, int threads, const TileKernels& tiles) : tiles_(tiles), threads_(threads) {
    for (int i = 0; i < threads; ++i) panels_.emplace_back(dtype, tiles);
    const Panels& panels = panels_[0];
    flops_ = 2.0 * static_cast<double>(panels.steps * panels.tiles) * tiles.k_step * tiles.mr * tiles.nr * threads;
    Seconds();  // the first waits for its team
    // Long beside the start of a team, if there is one, and short beside what else a processor does.
    const double at_a_time = threads == 1 ? 1e-3 : 5e-3;
    while (Seconds() < at_a_time) rounds_ *= 2;
  }
  double Seconds() {
    const auto start = std::chrono::steady_clock::now();
    RunTeam(threads_, [&](TeamMember self) {
      if (tiles_.enter != nullptr) tiles_.enter();
      for (int i = 0; i < rounds_; ++i) {
        for (int k = self.index; k < threads_; k += self.size) panels_[static_cast<size_t>(k)].Multiply(tiles_);
      }
      if (tiles_.leave != nullptr) tiles_.leave();
    });
    return SecondsSince(start);
  }
  double Rate() { return flops_ * rounds_ / Seconds(); }

 private:
  const TileKernels& tiles_;
  const int threads_;
  std::vector<Panels> panels_;
  double flops_ = 0;
  int rounds_ = 1;
};

// A product that takes at most a twentieth of `budget` seconds, of the sizes that training has if the machine is fast
// enough. `spent`: seconds until it was found; `best`: the fastest of those tried.
struct Largest {
  std::unique_ptr<Product> product;
  double spent = 0, best = 0;
};
Largest LargestProduct(DType dtype, int threads, Isa isa, double budget) {
  Largest found;
  for (int64_t n = kSmallest;; n *= 2) {
    found.product = std::make_unique<Product>(n, dtype, threads, isa);
    double once = found.product->Seconds();
    found.spent += once;
    // The first of a size may have waited for its team, or for other users of the cores.
    const double again = found.product->Seconds();
    found.spent += again;
    once = std::min(once, again);
    found.best = std::max(found.best, found.product->flops / once);
    if (n >= kLargest || 20 * once > budget - found.spent) return found;
  }
}

RateOfRounds RateOf(std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  return {rates.back(), rates[rates.size() / 2]};
}

}  // namespace

double MeasureGemmPeak(DType dtype, int threads, Isa isa, double seconds) {
  if (isa == Isa::kScalar) return MeasureProductRate(dtype, threads, isa);
  PeakSampler sampler(dtype, threads, TilesOf(dtype, isa));
  // Until five agree: nothing else had the processors then.
  constexpr size_t kAgree = 5, kMost = 12;
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> rates;  // falling
  while (rates.size() < kMost || SecondsSince(start) < seconds) {
    const double rate = sampler.Rate();
    rates.insert(std::upper_bound(rates.begin(), rates.end(), rate, std::greater<>()), rate);
    if (rates.size() >= kAgree && rates[0] <= 1.01 * rates[kAgree - 1] && SecondsSince(start) >= seconds) break;
  }
  return rates[0];
}

ProductSpeed MeasureProductSpeed(DType dtype, int threads, Isa isa, double seconds) {
  TEMPER_CHECK(isa != Isa::kScalar) << "there are no tiles";
  const auto start = std::chrono::steady_clock::now();
  PeakSampler sampler(dtype, threads, TilesOf(dtype, isa));
  Largest large = LargestProduct(dtype, threads, isa, seconds);
  constexpr size_t kFewest = 3;
  std::vector<double> products, peaks;
  while (products.size() < kFewest || SecondsSince(start) < seconds) {
    peaks.push_back(sampler.Rate());
    products.push_back(large.product->flops / large.product->Seconds());
  }
  ProductSpeed speed = {RateOf(std::move(products)), RateOf(std::move(peaks))};
  speed.peak.best = std::max(speed.peak.best, speed.products.best);  // they reached that, too
  return speed;
}

double MeasureProductRate(DType dtype, int threads, Isa isa) {
  Largest large = LargestProduct(dtype, threads, isa, kBudget);
  for (double once = 0; large.spent + once < kBudget;) {
    once = large.product->Seconds();
    large.spent += once;
    large.best = std::max(large.best, large.product->flops / once);
  }
  return large.best;
}

}  // namespace temper
