// How close does attention come to the peak of matrix products? 2,048 tokens in causal documents, forward and backward,
// over head_dim and document length. FLOPs are those of the keys that queries see: 4 E per query, key and head forward,
// 10 E backward (five products). Flags: --threads N --isa avx2|avx512|avx512_bf16|avx512_bf16_dot.
#include <fmt/core.h>

#include <cmath>

#include "backend/cpu/products/gemm_peak.h"
#include "bench/measure.h"
#include "graph/named_ops.h"

namespace temper::bench {
namespace {

constexpr int64_t kTokens = 2048;

struct Case {
  int64_t heads, kv_heads, E, document;
};

void SetDocuments(Instruction& instruction, int input, int64_t length) {
  for (int64_t t = 0; t < kTokens; ++t) {
    instruction.input<int32_t>(input)[t] = static_cast<int32_t>(t / length * length);
  }
}

void RunCase(const Case& c, DType dtype, const CpuOptions& options, double peak) {
  const TensorType q = {dtype, {kTokens, c.heads * c.E}}, k = {dtype, {kTokens, c.kv_heads * c.E}};
  const TensorType starts = {DType::kI32, {kTokens}}, lse = {DType::kF32, {kTokens, c.heads}};
  const Attributes attributes = {
      {"heads", c.heads}, {"kv_heads", c.kv_heads}, {"scale", 1 / std::sqrt(static_cast<double>(c.E))}};
  Instruction forward(Op::kAttention, {q, k, k, starts}, attributes, options);
  SetDocuments(forward, 3, c.document);
  const Timing f = Measure([&] { forward.Run(); }, 0.15);
  Instruction backward(Op::kAttentionBackward, {q, q, k, k, q, lse, starts}, attributes, options);
  SetDocuments(backward, 6, c.document);
  forward.CopyOutput(0, backward, 4);
  forward.CopyOutput(1, backward, 5);
  const Timing b = Measure([&] { backward.Run(); }, 0.25);
  const double pairs = static_cast<double>(kTokens) * static_cast<double>(c.document + 1) / 2;
  const double flops = 4 * pairs * static_cast<double>(c.heads * c.E);
  fmt::print("{:5} {:3}/{:<3} {:4} {:6} | {:8.2f} {:6.0f} {:4.0f}% ({:3.0f}%) | {:8.2f} {:6.0f} {:4.0f}% ({:3.0f}%)\n",
             ToString(dtype), c.heads, c.kv_heads, c.E, c.document, f.median * 1e3, flops / f.median * 1e-9,
             100 * flops / f.median / peak, 100 * flops / f.best / peak, b.median * 1e3, 2.5 * flops / b.median * 1e-9,
             250 * flops / b.median / peak, 250 * flops / b.best / peak);
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  using namespace temper;
  using namespace temper::bench;
  const CpuOptions options = OptionsFrom(argc, argv);
  fmt::print("{} threads, {}, {} tokens; %: of the peak of products measured just before (best run)\n", options.threads,
             ToString(options.isa), kTokens);
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    fmt::print("\n                             | forward                       | backward\n");
    fmt::print("dtype heads   E  tokens/doc |       ms  GF/s  % peak        |       ms  GF/s  % peak\n");
    for (const Case& c : {Case{12, 4, 64, 512}, Case{12, 4, 64, 2048}, Case{12, 4, 64, 128}, Case{12, 12, 64, 512},
                          Case{6, 2, 128, 512}, Case{6, 2, 128, 2048}, Case{24, 8, 32, 512}}) {
      RunCase(c, dtype, options, MeasureGemmPeak(dtype, options.threads, options.isa));
    }
  }
}
