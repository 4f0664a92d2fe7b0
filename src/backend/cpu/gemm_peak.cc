#include "backend/cpu/gemm_peak.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "graph/rule.h"

namespace temper {
namespace {

constexpr double kBudget = 0.45;  // seconds for all
constexpr int64_t kLargest = 2048, kSmallest = 64;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::byte[], Free>;

// Zeroed, so that every page is there before the clock runs.
Buffer Allocate(Bytes size) {
  const auto n = static_cast<size_t>(AlignUp(size, 64).v);
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(64, n)));
  TEMPER_CHECK(buffer != nullptr) << n;
  std::fill_n(buffer.get(), n, std::byte{0});
  return buffer;
}

// x w^T of n x n matrices.
struct Product {
  Product(int64_t n, DType dtype, int threads, Isa isa) : flops(2.0 * static_cast<double>(n * n * n)) {
    const TensorType matrix = {dtype, {n, n}};
    KernelSpec spec = {.op = Op::kLinear, .inputs = {matrix, matrix}, .outputs = {matrix}, .threads = threads};
    spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, spec.attributes, threads);
    kernel = std::move(*MakeCpuKernels({.threads = threads, .isa = isa})->Make(spec));
    for (Buffer* b : {&x, &w, &y}) *b = Allocate(matrix.bytes());
    workspace = Allocate(spec.workspace);
  }
  double Seconds() {
    std::byte *inputs[] = {x.get(), w.get()}, *outputs[] = {y.get()};
    const auto start = std::chrono::steady_clock::now();
    const Status status = kernel->Run({inputs, outputs, workspace.get()});
    TEMPER_CHECK(status.ok()) << status.message();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  double flops;
  std::unique_ptr<Kernel> kernel;
  Buffer x, w, y, workspace;
};

}  // namespace

double MeasureGemmPeak(DType dtype, int threads, Isa isa) {
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
