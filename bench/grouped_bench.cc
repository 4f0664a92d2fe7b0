// How fast are the products of experts (grouped_linear, its dx and dw) beside those of one matrix with as many rows, in
// % of what the machine's multipliers can do (gemm_peak.h)? And where experts have few rows: at how many bytes per
// second are their weights read, beside a copy of memory? Rows are dealt to experts evenly. Flags as gemm_bench's.
#include <fmt/core.h>

#include "backend/cpu/products/gemm_peak.h"
#include "bench/measure.h"
#include "graph/named_ops.h"

namespace temper::bench {
namespace {

struct Case {
  int64_t rows, experts, in, out;  // rows of all experts
};

// Seconds of a pass that reads `bytes` and does little else: the sum of squares of f32.
double ReadSeconds(int64_t bytes, const CpuOptions& options) {
  Instruction read(Op::kSumSquares, {{DType::kF32, {bytes / 4}}}, {}, options);
  return Measure([&] { read.Run(); }).median;
}

double SecondsOf(Instruction* products, const Case& c) {
  int32_t* const expert = products->input<int32_t>(2);
  for (int64_t p = 0; p < c.rows; ++p) expert[p] = static_cast<int32_t>(p * c.experts / c.rows);
  return Measure([&] { products->Run(); }).median;
}

void RunCase(const Case& c, DType dtype, const CpuOptions& options) {
  const double peak = MeasureGemmPeak(dtype, options.threads, options.isa);
  const double flops = 2.0 * static_cast<double>(c.rows * c.in * c.out);
  const TensorType x{dtype, {c.rows, c.in}}, y{dtype, {c.rows, c.out}}, w{dtype, {c.experts, c.out, c.in}};
  const TensorType matrix{dtype, {c.out, c.in}}, expert{DType::kI32, {c.rows}};
  const bool packs = dtype == DType::kBF16 && c.out % kPanelLines == 0 && ReadsPackedWeights(options.isa);
  const double read = ReadSeconds(w.bytes().v, options);
  fmt::print("{:6} {:4} {:5} {:5} |", c.rows, c.experts, c.in, c.out);
  for (const auto& [grouped, dense] : {std::pair{Op::kGroupedLinear, Op::kLinear},
                                       {Op::kGroupedLinearDx, Op::kLinearDx},
                                       {Op::kGroupedLinearDw, Op::kLinearDw}}) {
    const bool dw = grouped == Op::kGroupedLinearDw;
    const TensorType& a = grouped == Op::kGroupedLinear ? x : y;
    Attributes attributes = {{"active", int64_t{8}}};
    if (dw) attributes.Set("matrices", c.experts);
    Instruction of_experts(grouped, {a, dw ? x : w, expert}, attributes, options);
    const double seconds = SecondsOf(&of_experts, c);
    fmt::print(" {:3.0f}%", 100 * flops / seconds / peak);
    double least = seconds;
    if (packs && !dw) {
      TensorType panels = w;
      panels.layout = RuleOf(grouped).packed.layout;
      Instruction of_packed(grouped, {a, panels, expert}, attributes, options);
      const double packed = SecondsOf(&of_packed, c);
      fmt::print(" {:3.0f}%", 100 * flops / packed / peak);
      least = std::min(least, packed);
    }
    Instruction of_one(dense, {a, dw ? x : matrix}, {}, options);
    fmt::print(" ({:3.0f}%) {:3.0f}% |", 100 * flops / Measure([&] { of_one.Run(); }).median / peak,
               100 * read / least);
    std::fflush(stdout);
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  using namespace temper;
  using namespace temper::bench;
  const CpuOptions options = OptionsFrom(argc, argv);
  DType dtype = DType::kBF16;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--dtype") dtype = *ParseDType(argv[i + 1]);
  }
  fmt::print(
      "{} threads, {}, {}; % of the tile peak: experts, experts whose weights are packed, (one matrix); "
      "then the time to read all weights, in % of the faster\n",
      options.threads, ToString(options.isa), ToString(dtype));
  fmt::print("  rows experts in   out | grouped_linear | dx | dw\n");
  // Qwen3-30B-A3B's gate or up, its down, LoRA's A and B of them with rank 16; then few rows each.
  for (const Case& c :
       {Case{16384, 32, 2048, 768}, Case{16384, 32, 768, 2048}, Case{16384, 128, 2048, 768}, Case{16384, 32, 2048, 16},
        Case{16384, 32, 16, 768}, Case{2048, 128, 2048, 768}, Case{512, 32, 2048, 768}, Case{64, 64, 2048, 768}}) {
    RunCase(c, dtype, options);
  }
}
