// How close do the memory-bound kernels come to the bandwidth of the memory? Operands beyond the caches; bytes are
// those of the ops' cost rules, each operand once; the limit is the triad a = b + s * c of this run (12 bytes per
// element counted; the caches also read what it writes, so kernels that write in place may exceed it). Flags: --threads
// N --isa avx2|avx512|avx512_bf16|avx512_bf16_dot.
#include <fmt/core.h>

#include "base/team.h"
#include "bench/measure.h"
#include "bench/memory_cases.h"
#include "graph/named_ops.h"

namespace temper::bench {
namespace {

// 64 MiB of f32 per operand: twice the last-level cache measured on.
constexpr int64_t kT = 8192, kD = 2048;

double TriadBytesPerSecond(int threads) {
  constexpr int64_t kN = kT * kD;
  std::vector<float> a(kN), b(kN, 1), c(kN, 2);
  const Timing t = Measure([&] {
    ParallelBlocks(threads, kN, 4096, [&](int64_t begin, int64_t end) {
      float *const x = a.data(), *const y = b.data(), *const z = c.data();
      for (int64_t i = begin; i < end; ++i) x[i] = y[i] + 3 * z[i];
    });
  });
  return 12.0 * kN / t.best;
}

void Main(const CpuOptions& options) {
  const double limit = TriadBytesPerSecond(options.threads);
  fmt::print("{} threads, {}: triad {:.1f} GB/s\n", options.threads, ToString(options.isa), limit / 1e9);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const MemoryCase& c : MemoryCases(dtype, kT, kD)) {
      Instruction instruction(c.op, c.inputs, c.attributes, options);
      if (c.output >= 0) instruction.InPlace(c.output, c.input);
      if (c.op == Op::kAdamw) {
        instruction.InPlace(0, 0);
        instruction.InPlace(1, 2);
        instruction.InPlace(2, 3);
        for (int i = 0; i < kNumScalars; ++i) instruction.input<double>(5)[i] = 0.5;
        for (int64_t i = 0; i < kT * kD; ++i) instruction.input<float>(3)[i] = 0.01f;  // a second moment is positive
      }
      if (c.inputs.size() > 1 && c.inputs[1].dtype == DType::kI32) {
        for (int64_t t = 0; t < kT; ++t) instruction.input<int32_t>(1)[t] = static_cast<int32_t>(t * 5 % kT);
      }
      const KernelSpec& spec = instruction.spec();
      const Cost cost = RuleOf(c.op).cost(spec.inputs, spec.outputs, spec.attributes);
      const double bytes = static_cast<double>((cost.read + cost.written).v);
      const Timing t = Measure([&] { instruction.Run(); }, 0.2);
      fmt::print("{:5} {:28} {:7.2f} ms {:6.1f} GB/s {:5.0f} % of triad (median {:.0f} %)\n", ToString(dtype), c.name,
                 t.best * 1e3, bytes / t.best / 1e9, 100 * bytes / t.best / limit, 100 * bytes / t.median / limit);
    }
  }
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  temper::bench::Main(temper::bench::OptionsFrom(argc, argv));
}
