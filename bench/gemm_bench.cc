// How fast are linear, linear_dx and linear_dw for the shapes of training, in % of what the machine's multipliers can
// do (gemm_peak.h, measured just before each shape), and beside oneDNN where it is installed? oneDNN takes as many
// threads as OMP_NUM_THREADS says. Flags: --threads N --isa avx2|avx512|avx512_bf16|avx512_bf16_dot|amx_bf16 --dtype
// f32.
#include <fmt/core.h>

#include "backend/cpu/products/gemm_peak.h"
#include "bench/measure.h"
#include "graph/named_ops.h"
#ifdef TEMPER_HAVE_DNNL
#include <dnnl.hpp>
#endif

namespace temper::bench {
namespace {

struct Case {
  int64_t T, I, O;
};

#ifdef TEMPER_HAVE_DNNL
// oneDNN's matmul of the same operands with plain strides, out as ours.
Timing MeasureOneDnn(Op op, const Case& c, DType dtype) {
  using dnnl::memory;
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  const auto type = dtype == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
  const auto out_type = op == Op::kLinearDw ? memory::data_type::f32 : type;
  memory::dims m, n;
  memory::desc a, b, y;
  if (op == Op::kLinear) {
    a = {{c.T, c.I}, type, memory::dims{c.I, 1}};
    b = {{c.I, c.O}, type, memory::dims{1, c.I}};
    y = {{c.T, c.O}, out_type, memory::dims{c.O, 1}};
  } else if (op == Op::kLinearDx) {
    a = {{c.T, c.O}, type, memory::dims{c.O, 1}};
    b = {{c.O, c.I}, type, memory::dims{c.I, 1}};
    y = {{c.T, c.I}, out_type, memory::dims{c.I, 1}};
  } else {
    a = {{c.O, c.T}, type, memory::dims{1, c.O}};
    b = {{c.T, c.I}, type, memory::dims{c.I, 1}};
    y = {{c.O, c.I}, out_type, memory::dims{c.I, 1}};
  }
  const dnnl::matmul::desc desc(a, b, y);
  const dnnl::matmul matmul(dnnl::matmul::primitive_desc(desc, engine));
  memory ma(a, engine), mb(b, engine), my(y, engine);
  Randomize(ma.get_data_handle(), dtype, static_cast<int64_t>(a.get_size()) / SizeOf(dtype));
  Randomize(mb.get_data_handle(), dtype, static_cast<int64_t>(b.get_size()) / SizeOf(dtype));
  return Measure([&] {
    matmul.execute(stream, {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, my}});
    stream.wait();
  });
}
#endif

void RunCase(const Case& c, DType dtype, const CpuOptions& options) {
  const double peak = MeasureGemmPeak(dtype, options.threads, options.isa),
               flops = 2.0 * static_cast<double>(c.T * c.I * c.O);
  fmt::print("{:5} {:5} {:5} |", c.T, c.I, c.O);
  for (Op op : {Op::kLinear, Op::kLinearDx, Op::kLinearDw}) {
    const TensorType x = {dtype, {c.T, c.I}}, w = {dtype, {c.O, c.I}}, y = {dtype, {c.T, c.O}};
    Types inputs;
    if (op == Op::kLinear) inputs = {x, w};
    if (op == Op::kLinearDx) inputs = {y, w};
    if (op == Op::kLinearDw) inputs = {y, x};
    Instruction instruction(op, inputs, {}, options);
    const Timing time = Measure([&] { instruction.Run(); });
    double bytes = static_cast<double>(instruction.spec().outputs[0].bytes().v);
    for (const TensorType& t : inputs) bytes += static_cast<double>(t.bytes().v);
    fmt::print(" {:5.0f} {:3.0f}% ({:3.0f}%) {:3.0f} GB/s", flops / time.median * 1e-9,
               100 * flops / time.median / peak, 100 * flops / time.best / peak, bytes / time.best * 1e-9);
#ifdef TEMPER_HAVE_DNNL
    const Timing other = MeasureOneDnn(op, c, dtype);
    fmt::print(" [{:4.0f} {:3.0f}%]", flops / other.median * 1e-9, 100 * flops / other.best / peak);
#endif
    fmt::print(" |");
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
  fmt::print("{} threads, {}, {}; median GFLOP/s, % of the tile peak (best), operand bytes per second (best)",
             options.threads, ToString(options.isa), ToString(dtype));
#ifdef TEMPER_HAVE_DNNL
  fmt::print(" [oneDNN: median, best]");
#endif
  fmt::print("\n    T     I     O | linear | linear_dx | linear_dw\n");
  for (const Case& c :
       {Case{2048, 768, 768}, Case{2048, 768, 256}, Case{2048, 768, 2048}, Case{2048, 2048, 768},
        Case{2048, 2048, 2048}, Case{2048, 4096, 4096}, Case{512, 768, 32000}, Case{512, 2048, 2048},
        Case{2048, 768, 8}, Case{2048, 768, 16}, Case{2048, 768, 64}, Case{2048, 16, 768}, Case{2048, 16, 2048},
        Case{2048, 2048, 16}, Case{1, 2048, 2048}, Case{1, 768, 32000}, Case{8, 2048, 2048}}) {
    RunCase(c, dtype, options);
  }
}
