// Clipping: sum_squares of each gradient, then clip over all of them.
//
// Clipping as torch.nn.utils.clip_grad_norm_: factor max_norm/(norm + 1e-6) where that is below 1, with the norm of the
// gradient of the *mean* loss. Gradients hold the loss sum's gradient, so 1/N is folded into the factor. Of no sums it
// is 1/N, and the norm 0.
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"

namespace temper {
namespace {

const TensorType kScalarsType{DType::kF64, {kNumScalars}};
const TensorType kSumType{DType::kF64, {1}};

Result<Types> InferSumSquares(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !IsFloat(in[0])) return BadOperands(Op::kSumSquares, "one gradient", in, a);
  return Types{kSumType};
}
Cost SumSquaresCost(const Types& in, const Types& out, const Attributes&) {
  return {
      .flops = {2.0 * static_cast<double>(in[0].shape.elements())}, .read = in[0].bytes(), .written = out[0].bytes()};
}
// One f64 per block of 4096 elements.
Bytes SumSquaresWorkspace(const Types& in, const Types&, const Attributes&, int) {
  return {(in[0].shape.elements() + 4095) / 4096 * SizeOf(DType::kF64)};
}

Result<Types> InferSumScalars(const Types& in, const Attributes& a) {
  for (const TensorType& t : in) {
    if (!(t == kSumType)) return BadOperands(Op::kSumScalars, "f64[1]...", in, a);
  }
  return Types{kSumType};
}
Cost SumScalarsCost(const Types& in, const Types& out, const Attributes&) {
  const auto n = static_cast<int64_t>(in.size());
  return {.flops = {static_cast<double>(n)}, .read = kSumType.bytes() * n, .written = out[0].bytes()};
}

Result<Types> InferClip(const Types& in, const Attributes& a) {
  bool good = !in.empty() && in.back() == kScalarsType;
  for (size_t i = 0; good && i + 1 < in.size(); ++i) good = in[i] == kSumType;
  if (!good) return BadOperands(Op::kClip, "(sums f64[1]..., scalars)", in, a);
  return Types{{DType::kF32, {2}}};
}
Cost ClipCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 1);
}

constexpr AttributeSpec kClipAttributes[] = {OptionalDouble("max_norm")};

constexpr FlowOperand kSumSquaresIn[] = {{"ABCD"}};
constexpr FlowOutput kSumSquaresOut[] = {{"", {Factors({0})}}};
constexpr FlowRule kSumSquaresFlow = {.in = kSumSquaresIn, .out = kSumSquaresOut};
constexpr FlowRule kSumScalarsFlow = {.of_whole = true};
constexpr FlowRule kClipFlow = {.of_whole = true};

// Gradients are f32.
std::vector<MeasuredCase> MeasuredSumSquares(DType dtype) {
  if (dtype != DType::kF32) return {};
  return MeasuredAlike(dtype, 1, {});
}

}  // namespace

const OpRule kSumSquaresRule = {.kind = OpKind::kMemory,
                                .infer = InferSumSquares,
                                .flow = &kSumSquaresFlow,
                                .cost = SumSquaresCost,
                                .workspace = SumSquaresWorkspace,
                                .measured = MeasuredSumSquares};
const OpRule kSumScalarsRule = {
    .kind = OpKind::kMemory, .infer = InferSumScalars, .flow = &kSumScalarsFlow, .cost = SumScalarsCost};
const OpRule kClipRule = {
    .kind = OpKind::kMemory, .attributes = kClipAttributes, .infer = InferClip, .flow = &kClipFlow, .cost = ClipCost};

}  // namespace temper
