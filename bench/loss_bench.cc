// What does the head with its loss cost beside its three matrix products? linear_cross_entropy of 2,048 tokens, 32,000
// words, 768 columns, over chunk sizes: loss alone, with d_x, with d_x and an accumulated d_w.
// Flags: --threads N --isa avx2|avx512|avx512_bf16|avx512_bf16_dot.
#include <fmt/core.h>

#include "backend/cpu/products/gemm_peak.h"
#include "bench/measure.h"
#include "graph/named_ops.h"

int main(int argc, char** argv) {
  using namespace temper;
  using namespace temper::bench;
  const CpuOptions options = OptionsFrom(argc, argv);
  constexpr int64_t T = 2048, V = 32000, D = 768;
  fmt::print("{} threads, {}, T={} V={} D={}; %: of the peak of products measured just before\n", options.threads,
             ToString(options.isa), T, V, D);
  fmt::print("dtype chunk gradients     ms   GF/s  median (best)  workspace\n");
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (int64_t chunk : {256, 512, 1024}) {
      for (int gradients = 0; gradients < 3; ++gradients) {
        const bool d_x = gradients >= 1, d_w = gradients == 2;
        Types inputs = {{dtype, {T, D}}, {dtype, {V, D}}, {DType::kI32, {T}}};
        if (d_w) inputs.push_back({DType::kF32, {V, D}});
        Instruction loss(
            Op::kLinearCrossEntropy, inputs,
            {{"chunk", chunk}, {"grad_x", int64_t{d_x}}, {"grad_w", int64_t{d_w}}, {"acc_w", int64_t{d_w}}}, options);
        for (int64_t t = 0; t < T; ++t) loss.input<int32_t>(2)[t] = static_cast<int32_t>(t * 7919 % V);
        if (d_w) loss.InPlace(2, 3);
        const double peak = MeasureGemmPeak(dtype, options.threads, options.isa);
        const Timing time = Measure([&] { loss.Run(); }, 1.0);
        const double flops = 2.0 * T * V * D * (1 + gradients);
        fmt::print("{:5} {:5} {:9} {:6.1f} {:6.0f}  {:3.0f}% ({:3.0f}%)  {}\n", ToString(dtype), chunk,
                   d_w   ? "d_x, d_w"
                   : d_x ? "d_x"
                         : "none",
                   time.median * 1e3, flops / time.median * 1e-9, 100 * flops / time.median / peak,
                   100 * flops / time.best / peak, ToString(loss.spec().workspace));
      }
    }
  }
}
