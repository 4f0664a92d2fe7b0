#include "backend/cpu/products/gemm_peak.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/products/gemm.h"
#include "base/philox.h"
#include "base/team.h"
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

}  // namespace

double MeasureGemmPeak(DType dtype, int threads, Isa isa) {
  if (isa == Isa::kScalar) return MeasureProductRate(dtype, threads, isa);
  const TileKernels& t = TilesOf(dtype, isa);
  std::vector<Panels> panels;
  for (int i = 0; i < threads; ++i) panels.emplace_back(dtype, t);
  const double flops = 2.0 * static_cast<double>(panels[0].steps * panels[0].tiles) * t.k_step * t.mr * t.nr * threads;
  int rounds = 1;
  const auto once = [&] {
    const auto start = std::chrono::steady_clock::now();
    RunTeam(threads, [&](TeamMember self) {
      if (t.enter != nullptr) t.enter();
      for (int i = 0; i < rounds; ++i) {
        for (int k = self.index; k < threads; k += self.size) panels[static_cast<size_t>(k)].Multiply(t);
      }
      if (t.leave != nullptr) t.leave();
    });
    return SecondsSince(start);
  };
  once();  // the first waits for its team
  // Long beside the start of a team, if there is one, and short beside what else a processor does.
  const double at_a_time = threads == 1 ? 1e-3 : 5e-3;
  while (once() < at_a_time) rounds *= 2;
  // Until five agree: nothing else had the processors then.
  constexpr size_t kAgree = 5, kMost = 12;
  std::vector<double> fastest;
  while (fastest.size() < kMost) {
    const double seconds = once();
    fastest.insert(std::upper_bound(fastest.begin(), fastest.end(), seconds), seconds);
    if (fastest.size() >= kAgree && fastest[kAgree - 1] <= 1.01 * fastest[0]) break;
  }
  return flops * rounds / fastest[0];
}

double MeasureProductRate(DType dtype, int threads, Isa isa) {
  double spent = 0, best = 0;
  // Grow until a product takes a twentieth of what is left, then repeat the largest.
  for (int64_t n = kSmallest;; n *= 2) {
    Product product(n, dtype, threads, isa);
    double once = product.Seconds();
    spent += once;
    // The first of a size may have waited for its team, or for other users of the cores.
    const double again = product.Seconds();
    spent += again;
    once = std::min(once, again);
    best = std::max(best, product.flops / once);
    const bool last = n >= kLargest || 9 * once > kBudget - spent;
    if (!last) continue;
    while (spent + once < kBudget) {
      once = product.Seconds();
      spent += once;
      best = std::max(best, product.flops / once);
    }
    return best;
  }
}

}  // namespace temper
