#include "backend/cpu/products/linear.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/products/gemm.h"
#include "graph/named_ops.h"
#include "graph/ops/linear_operands.h"

namespace temper {
namespace {

class LinearKernel final : public Kernel {
 public:
  LinearKernel(const KernelSpec& spec, const GemmShape& shape, const TileKernels& tiles, const LinearOperands& places)
      : gemm_(shape, spec.threads, tiles), places_(places) {
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
    if (places.x2 >= 0) {
      operands_.a2_stride = spec.inputs[static_cast<size_t>(places.x2)].shape[1];
      operands_.b2_stride = spec.inputs[static_cast<size_t>(places.w2)].shape[1];
    }
    TileOutput& out = operands_.output;
    out.out_dtype = spec.outputs[0].dtype;
    out.out_stride = out.acc_stride = shape.n;
    out.scale = static_cast<float>(spec.attributes.DoubleOr("scale", 1.0));
    if (places.acc >= 0) out.acc_dtype = spec.inputs[static_cast<size_t>(places.acc)].dtype;
    if (places.bias >= 0) out.bias_dtype = spec.inputs[static_cast<size_t>(places.bias)].dtype;
  }

  Status Run(const KernelArgs& args) override {
    GemmOperands operands = operands_;
    operands.a = args.inputs[0];
    operands.b = args.inputs[1];
    operands.output.out = args.outputs[0];
    const auto input = [&args](int at) { return at < 0 ? nullptr : args.inputs[at]; };
    operands.a2 = input(places_.x2);
    operands.b2 = input(places_.w2);
    operands.output.acc = input(places_.acc);
    operands.output.bias = input(places_.bias);
    gemm_.Run(operands, args.workspace);
    return OkStatus();
  }

 private:
  const Gemm gemm_;
  const LinearOperands places_;
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
  const LinearOperands places(spec.attributes);
  const GemmShape shape = {.m = spec.outputs[0].shape[0],
                           .n = spec.outputs[0].shape[1],
                           .k = spec.inputs[0].shape[forward || d_x ? 1 : 0],
                           .dtype = spec.inputs[0].dtype,
                           .out_dtype = spec.outputs[0].dtype,
                           .a_k_contiguous = forward || d_x,
                           .b_k_contiguous = forward,
                           .k2 = places.x2 < 0 ? 0 : spec.inputs[static_cast<size_t>(places.x2)].shape[1],
                           .b_packed = spec.inputs[1].packed()};
  return std::make_unique<LinearKernel>(spec, shape, tiles, places);
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
