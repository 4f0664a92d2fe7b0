#include "backend/cpu/linear.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernels.h"

namespace temper {
namespace {

class LinearKernel final : public Kernel {
 public:
  // `bias` and `acc`: which inputs they are, -1 for none.
  LinearKernel(const KernelSpec& spec, const GemmShape& shape, const TileKernels& tiles, int bias, int acc)
      : gemm_(shape, spec.threads, tiles), bias_(bias), acc_(acc) {
    TEMPER_CHECK(gemm_.workspace() <= spec.workspace)
        << ToString(spec.op) << " " << spec.inputs[0].ToString() << " by " << spec.inputs[1].ToString() << " needs "
        << gemm_.workspace().v << " bytes, its rule gives " << spec.workspace.v;
    operands_.a_stride = spec.inputs[0].shape[1];
    const TensorType& b = spec.inputs[1];
    operands_.b_stride = b.packed()            ? PackedPanels(b.layout, b.shape[0], b.shape[1]).panel_bytes()
                         : b.dtype.quantised() ? b.dtype.RowBytes(b.shape[1])
                                               : b.shape[1];
    operands_.b_format = b.dtype;
    operands_.b_columns = b.shape[1];
    TileOutput& out = operands_.output;
    out.out_dtype = spec.outputs[0].dtype;
    out.out_stride = out.acc_stride = shape.n;
    out.scale = static_cast<float>(spec.attributes.DoubleOr("scale", 1.0));
    if (acc >= 0) out.acc_dtype = spec.inputs[static_cast<size_t>(acc)].dtype;
    if (bias >= 0) out.bias_dtype = spec.inputs[static_cast<size_t>(bias)].dtype;
  }

  Status Run(const KernelArgs& args) override {
    GemmOperands operands = operands_;
    operands.a = args.inputs[0];
    operands.b = args.inputs[1];
    operands.output.out = args.outputs[0];
    if (acc_ >= 0) operands.output.acc = args.inputs[acc_];
    if (bias_ >= 0) operands.output.bias = args.inputs[bias_];
    gemm_.Run(operands, args.workspace);
    return OkStatus();
  }

 private:
  const Gemm gemm_;
  const int bias_, acc_;
  GemmOperands operands_;
};

bool IsComputable(ElementFormat t) {
  return t.compute() == DType::kF32 || t.compute() == DType::kBF16;
}

// f64 graphs, f16 operands and the like go to the reference kernels.
bool AllComputable(const KernelSpec& spec) {
  for (const TensorType& t : spec.inputs) {
    if (!IsComputable(t.dtype)) return false;
  }
  return IsComputable(spec.outputs[0].dtype);
}

}  // namespace

std::unique_ptr<Kernel> MakeLinearOf(const KernelSpec& spec, const TileKernels& tiles) {
  const bool forward = spec.op == Op::kLinear, d_x = spec.op == Op::kLinearDx;
  TEMPER_CHECK(forward || d_x || spec.op == Op::kLinearDw) << ToString(spec.op);
  const bool bias = spec.attributes.Flag("bias"), acc = spec.attributes.Flag("acc");
  const GemmShape shape = {.m = spec.outputs[0].shape[0],
                           .n = spec.outputs[0].shape[1],
                           .k = spec.inputs[0].shape[forward || d_x ? 1 : 0],
                           .dtype = spec.inputs[0].dtype,
                           .out_dtype = spec.outputs[0].dtype,
                           .a_k_contiguous = forward || d_x,
                           .b_k_contiguous = forward,
                           .b_packed = spec.inputs[1].packed()};
  return std::make_unique<LinearKernel>(spec, shape, tiles, bias ? 2 : -1, acc ? 2 + bias : -1);
}

bool ReadsPackedWeights(Isa isa) {
  return isa > Isa::kScalar && TilesOf(DType::kBF16, isa).pair_panels;
}

std::unique_ptr<Kernel> MakeLinear(const KernelSpec& spec, Isa isa) {
  if (!AllComputable(spec)) return nullptr;
  const TileKernels& tiles = TilesOf(spec.inputs[0].dtype, isa);
  if (spec.inputs[1].packed() && !tiles.pair_panels) return nullptr;
  return MakeLinearOf(spec, tiles);
}

}  // namespace temper
