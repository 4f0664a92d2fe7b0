#include "backend/gpu/gpu_kernels.h"

namespace temper::gpu {
namespace {

using Maker = std::unique_ptr<Kernel> (*)(const KernelSpec&, const Context&);

// clang-format off
Maker MakerOf(Op op) {
  switch (op) {
    case Op::kEmbedding: return MakeEmbedding;
    case Op::kEmbeddingBackward: return MakeEmbeddingBackward;
    case Op::kAdd: return MakeAdd;
    case Op::kCast: return MakeCast;
    case Op::kSliceRows: return MakeSliceRows;
    case Op::kRmsNorm: return MakeRmsNorm;
    case Op::kRmsNormBackward: return MakeRmsNormBackward;
    case Op::kLayerNorm: return MakeLayerNorm;
    case Op::kLayerNormBackward: return MakeLayerNormBackward;
    case Op::kRopeTable: return MakeRopeTable;
    case Op::kRope: return MakeRope;
    case Op::kAttention: return MakeAttention;
    case Op::kAttentionBackward: return MakeAttentionBackward;
    case Op::kAttentionStep: return MakeAttentionStep;
    case Op::kAttentionStepBackward: return MakeAttentionStepBackward;
    case Op::kAttentionCached: return MakeAttentionCached;
    case Op::kSwiglu: return MakeSwiglu;
    case Op::kSwigluBackward: return MakeSwigluBackward;
    case Op::kRelu: return MakeRelu;
    case Op::kReluBackward: return MakeReluBackward;
    case Op::kGelu: return MakeGelu;
    case Op::kGeluBackward: return MakeGeluBackward;
    case Op::kDropout: return MakeDropout;
    case Op::kSumRows: return MakeSumRows;
    case Op::kSumSquares: return MakeSumSquares;
    case Op::kSumScalars: return MakeSumScalars;
    case Op::kClip: return MakeClip;
    case Op::kAdamw: return MakeAdamw;
    case Op::kSgd: return MakeSgd;
    // Matrix products can fail for other reasons: MakeGpuKernel makes them. The others are no kernels' work. All ops are
    // named, so that the compiler says where one was forgotten.
    case Op::kLinear: case Op::kLinearDx: case Op::kLinearDw: case Op::kLinearCrossEntropy:
    case Op::kFetch: case Op::kEvict:
    case Op::kAllGather: case Op::kReduceScatter: case Op::kAllReduce: case Op::kBroadcast: case Op::kShift:
    case Op::kSend: case Op::kRecv: return nullptr;
  }
  return nullptr;
}
// clang-format on

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuKernel(const KernelSpec& spec, const Context& context) {
  switch (spec.op) {
    case Op::kLinear:
      return MakeLinear(spec, context);
    case Op::kLinearDx:
      return MakeLinearDx(spec, context);
    case Op::kLinearDw:
      return MakeLinearDw(spec, context);
    case Op::kLinearCrossEntropy:
      return MakeLinearCrossEntropy(spec, context);
    default:
      break;
  }
  const Maker maker = MakerOf(spec.op);
  if (maker == nullptr) return Unsupported("the GPU backend has no kernel of " + std::string(ToString(spec.op)));
  std::unique_ptr<Kernel> kernel = maker(spec, context);
  if (kernel != nullptr) return Result<std::unique_ptr<Kernel>>(std::move(kernel));
  std::string text = "the GPU backend has no " + std::string(ToString(spec.op)) + " of";
  for (const TensorType& t : spec.inputs) text += " " + t.ToString();
  return Unsupported(text + " " + spec.attributes.ToString());
}

}  // namespace temper::gpu
