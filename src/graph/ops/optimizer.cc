// The update: sum_squares of each gradient, clip over all of them, adamw per trainable value.
//
// Clipping as torch.nn.utils.clip_grad_norm_: factor max_norm/(norm + 1e-6) where that is below 1, with the norm of the
// gradient of the *mean* loss. Gradients hold the loss sum's gradient, so 1/N is folded into the factor. Of no sums it
// is 1/N, and the norm 0.
// AdamW is Loshchilov & Hutter 2019 in torch.optim.AdamW's order; fma, sqrt and division only.
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

Result<Types> InferAdamw(const Types& in, const Attributes& a) {
  Result<DType> weight = DType::kF32;
  if (a.Has("dtype")) weight = ParseDType(a.String("dtype"));
  const bool good = in.size() == 6 && in[0].dtype == DType::kF32 && in[1] == in[0] && in[2] == in[0] &&
                    in[3] == in[0] && in[4] == TensorType{DType::kF32, {2}} && in[5] == kScalarsType && weight.ok() &&
                    IsFloat({*weight, {}}) && a.Has("dtype") == a.Flag("weight");
  if (!good) return BadOperands(Op::kAdamw, "(master, g, m, v, clip f32[2], scalars), dtype of a weight", in, a);
  Types out = {in[0], in[2], in[3]};
  if (a.Flag("weight")) out.push_back({*weight, in[0].shape});
  return out;
}
Cost AdamwCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 14);
}

// Master and moments are updated where they are. The weight in compute precision is written, not read: its old bytes
// are no operand.
int AdamwOverwrites(const Attributes&, int, int output) {
  constexpr int kInputs[] = {0, 2, 3, -1};
  return kInputs[output];
}

constexpr AttributeSpec kClipAttributes[] = {OptionalDouble("max_norm")};
constexpr AttributeSpec kAdamwAttributes[] = {Double("beta1"),        Double("beta2"), Double("eps"),
                                              Double("weight_decay"), Flag("weight"),  OptionalString("dtype")};

constexpr FlowOperand kSumSquaresIn[] = {{"AB"}};
constexpr FlowOutput kSumSquaresOut[] = {{"", {Factors({0})}}};
constexpr FlowRule kSumSquaresFlow = {.in = kSumSquaresIn, .out = kSumSquaresOut};
constexpr FlowRule kSumScalarsFlow = {.of_whole = true};
constexpr FlowRule kClipFlow = {.of_whole = true};
constexpr FlowOperand kAdamwIn[] = {{"AB"}, {"AB"}, {"AB"}, {"AB"}, {""}, {""}};
constexpr FlowOutput kAdamwOut[] = {{"AB", {Factors({0, 1, 2, 3, 4, 5})}},
                                    {"AB", {Factors({0, 1, 2, 3, 4, 5})}},
                                    {"AB", {Factors({0, 1, 2, 3, 4, 5})}},
                                    {"AB", {Factors({0, 1, 2, 3, 4, 5})}, "weight"}};
constexpr FlowRule kAdamwFlow = {.in = kAdamwIn, .out = kAdamwOut};

// Gradients and states are f32.
std::vector<MeasuredCase> MeasuredSumSquares(DType dtype) {
  if (dtype != DType::kF32) return {};
  return MeasuredAlike(dtype, 1, {});
}
std::vector<MeasuredCase> MeasuredAdamw(DType dtype) {
  if (dtype != DType::kF32) return {};
  const Attributes attributes = {
      {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.0}, {"weight", int64_t{0}}};
  return MeasuredAtExtents(dtype, attributes, [](const TensorType& x) {
    return Types{x, x, x, x, {DType::kF32, {2}}, kScalarsType};
  });
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
const OpRule kAdamwRule = {.kind = OpKind::kElementwise,
                           .attributes = kAdamwAttributes,
                           .infer = InferAdamw,
                           .flow = &kAdamwFlow,
                           .cost = AdamwCost,
                           .overwrites = AdamwOverwrites,
                           .measured = MeasuredAdamw};

}  // namespace temper
