// Rows of tokens among those of experts: gather_rows puts each token's row where its experts read it, combine adds the
// rows of a token up, weighted. Without weights each is the other's adjoint. Sums are in f32, in the order in which
// the token chose its experts, so a token's bits do not depend on other tokens.
//
// Over the mesh axis ep ranks have experts of their own, and a rank's rows of other experts are zeros: sums are terms
// then, and the attribute `split` names the axis.
#include <algorithm>
#include <utility>

#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// place_TA beside rows of P.
bool IsPlace(const TensorType& place, const TensorType& rows) {
  return IsMatrix(place) && place.dtype == DType::kI32 && place.shape.elements() == rows.shape[0] && rows.shape[0] > 0;
}
bool AreWeights(const TensorType& weight, const TensorType& place, const TensorType& rows) {
  return weight == TensorType{StatisticDType(rows.dtype), place.shape};
}

void CopySplit(const Node& from, Attributes* to) {
  if (from.attributes.Has("split")) to->Set("split", from.attributes.String("split"));
}
bool GoodSplit(const Attributes& a) {
  return !a.Has("split") || AxisSet::Parse(a.String("split")).ok();
}

Result<Types> InferGather(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsMatrix(in[1]) || in[1].dtype != DType::kI32 ||
      in[1].shape[0] != in[0].shape[0] || in[1].shape[1] <= 0 || !GoodSplit(a)) {
    return BadOperands(Op::kGatherRows, "(x_TD, place_TA i32)", in, a);
  }
  return Types{{in[0].dtype, {in[1].shape.elements(), in[0].shape[1]}}};
}

void GatherGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  std::vector<ValueId> inputs = {sink.OutputGradient(0), sink.node().inputs[1]};
  const ValueId acc = sink.Pending(0);
  Attributes attributes = {{"weighted", int64_t{0}}};
  CopySplit(sink.node(), &attributes);
  // What is added to terms of a sum would be counted once per rank.
  const bool adds = acc != kNoValue && !attributes.Has("split");
  if (adds) inputs.push_back(acc);
  attributes.Set("acc", int64_t{adds});
  const ValueId sum = sink.Emit(Op::kCombine, std::move(inputs), std::move(attributes))[0];
  if (adds) {
    sink.Deliver(0, sum);
  } else {
    sink.Contribute(0, sum);
  }
}

// Whether rows are dealt over ep: each of its ranks has placed those of all tokens.
bool AreDealt(const Sharding& place, const Mesh& mesh) {
  return mesh.size(Axis::kEp) > 1 && !place.split(0).Has(Axis::kEp);
}

// Tensor ranks that share tokens each gather all of them, as a product does whose weight is cut; so do ranks of ep,
// whose experts serve them all.
void ShardGather(ShardingSink& sink) {
  Sharding x = sink.Settled(sink.sharding(0)), place = sink.sharding(1);
  for (const Axis axis : x.split(1).axes()) x = Gathered(x, 1, axis);
  for (const Axis axis : (x.split(0) & kTensorAxes).axes()) x = Gathered(x, 0, axis);
  Attributes attributes;
  if (AreDealt(place, sink.mesh())) {
    if (x.split(0).Has(Axis::kEp)) x = Gathered(x, 0, Axis::kEp);
    attributes.Set("split", AxisSet(Axis::kEp).ToString());
  }
  UseAlike({&x, &place}, sink.mesh());
  sink.Deliver(0, sink.Emit(Op::kGatherRows, {sink.Use(0, x), sink.Use(1, place)}, std::move(attributes), {x})[0]);
}

// Attributes: weighted, acc.
Result<Types> InferCombine(const Types& in, const Attributes& a) {
  const bool weighted = a.Flag("weighted"), acc = a.Flag("acc");
  if (in.size() != 2u + weighted + acc || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsPlace(in[1], in[0]) ||
      (weighted && !AreWeights(in[2], in[1], in[0])) || !GoodSplit(a)) {
    return BadOperands(Op::kCombine, "(y_PD, place_TA, [weight_TA f32], [acc_TD])", in, a);
  }
  const TensorType y{in[0].dtype, {in[1].shape[0], in[0].shape[1]}};
  if (acc && !(in.back() == y)) return BadOperands(Op::kCombine, "acc_TD like the sum", in, a);
  return Types{y};
}

void CombineGradient(GradientSink& sink) {
  const Node& node = sink.node();
  const ValueId d_y = sink.OutputGradient(0), place = node.inputs[1];
  if (node.attributes.Flag("acc") && sink.Needs(static_cast<int>(node.inputs.size()) - 1)) {
    sink.Contribute(static_cast<int>(node.inputs.size()) - 1, d_y);
  }
  if (!node.attributes.Flag("weighted")) {
    if (sink.Needs(0)) sink.Contribute(0, sink.Emit(Op::kGatherRows, {d_y, place}, {})[0]);
    return;
  }
  if (!sink.Needs(0) && !sink.Needs(2)) return;
  Attributes attributes;
  CopySplit(node, &attributes);
  const auto outputs =
      sink.Emit(Op::kCombineBackward, {d_y, node.inputs[0], place, node.inputs[2]}, std::move(attributes));
  if (sink.Needs(0)) sink.Contribute(0, outputs[0]);
  if (sink.Needs(2)) sink.Contribute(2, outputs[1]);
}

// Rows may be terms of a sum over tensor ranks: so is the result then, and the weights' gradient.
void ShardCombine(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding y = sink.sharding(0), place = sink.sharding(1);
  for (const Axis axis : y.split(1).axes()) y = Gathered(y, 1, axis);
  UseAlike({&y, &place}, sink.mesh());
  const Sharding alike = WholeBeside(y, sink.mesh());
  place.varying |= alike.varying - place.split();
  std::vector<ValueId> inputs = {sink.Use(0, y), sink.Use(1, place)};
  int next = 2;
  if (node.attributes.Flag("weighted")) inputs.push_back(sink.Use(next++, place));
  Attributes attributes = node.attributes;
  if (AreDealt(place, sink.mesh())) {
    y.varying = y.varying - Axis::kEp;
    y.partial |= Axis::kEp;
    attributes.Set("split", AxisSet(Axis::kEp).ToString());
  }
  DeliverWithAcc(sink, std::move(inputs), next, y, std::move(attributes));
}

Cost CombineCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 2.0 * static_cast<double>(in[1].shape[1]));
}
Cost GatherCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 0);
}

// The sum over what is added: each element is read just before it is written.
int CombineOverwrites(const Attributes& a, int num_inputs, int output) {
  return output == 0 && a.Flag("acc") ? num_inputs - 1 : -1;
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() != 4 || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsMatrix(in[1]) || in[1].dtype != in[0].dtype ||
      in[1].shape[1] != in[0].shape[1] || !IsPlace(in[2], in[1]) || in[2].shape[0] != in[0].shape[0] ||
      !AreWeights(in[3], in[2], in[1]) || !GoodSplit(a)) {
    return BadOperands(Op::kCombineBackward, "(d_y_TD, y_PD, place_TA, weight_TA f32)", in, a);
  }
  return Types{in[1], in[3]};
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 3);
}

constexpr AttributeSpec kCombineAttributes[] = {Flag("weighted"), Flag("acc"), OptionalString("split")};
constexpr AttributeSpec kSplitAttributes[] = {OptionalString("split")};  // gather_rows has it for its gradient

constexpr FlowOperand DealtRows() {
  FlowOperand rows = LinearIn("TD");
  rows.dealt = true;
  return rows;
}

constexpr FlowOperand kGatherIn[] = {LinearIn("TD"), {"Ta"}};
constexpr FlowOutput kGatherOut[] = {{"TD", {Factors({0, 1})}}};
constexpr FlowRule kGatherFlow = {.in = kGatherIn, .out = kGatherOut};
constexpr FlowOperand kCombineIn[] = {DealtRows(), {"Ta"}, {"Ta", false, "weighted"}, LinearIn("TD", "acc")};
constexpr FlowOutput kCombineOut[] = {{"TD", {Factors({0, 1, 2}), Factors({3})}}};
constexpr FlowRule kCombineFlow = {.in = kCombineIn, .out = kCombineOut, .part_axes = "split", .dealt = 'T'};
// The gradient of terms is whole, so rows may be terms.
constexpr FlowOperand kBackwardIn[] = {LinearIn("TD"), DealtRows(), {"Ta"}, {"Ta"}};
constexpr FlowOutput kBackwardOut[] = {{"TD", {Factors({0, 2, 3})}}, {"Ta", {Factors({0, 1, 2})}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut, .part_axes = "split", .dealt = 'T'};

// Four experts a token.
constexpr int64_t kMeasuredActive = 4;
std::vector<MeasuredCase> MeasuredGather(DType dtype) {
  return MeasuredAtExtents(dtype, {}, [](const TensorType& x) {
    return Types{x, {DType::kI32, {x.shape[0], kMeasuredActive}}};
  });
}
std::vector<MeasuredCase> MeasuredCombine(DType dtype) {
  return MeasuredAtExtents(dtype, {{"weighted", int64_t{1}}, {"acc", int64_t{0}}}, [](const TensorType& x) {
    const Shape places{x.shape[0], kMeasuredActive};
    return Types{{x.dtype, {places.elements(), x.shape[1]}}, {DType::kI32, places}, {DType::kF32, places}};
  });
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredAtExtents(dtype, {}, [](const TensorType& x) {
    const Shape places{x.shape[0], kMeasuredActive};
    return Types{x, {x.dtype, {places.elements(), x.shape[1]}}, {DType::kI32, places}, {DType::kF32, places}};
  });
}

}  // namespace

const OpRule kGatherRowsRule = {.kind = OpKind::kMemory,
                                .attributes = kSplitAttributes,
                                .infer = InferGather,
                                .gradient = GatherGradient,
                                .shard = ShardGather,
                                .flow = &kGatherFlow,
                                .cost = GatherCost,
                                .recompute = RecomputeCost::kCheap,
                                .measured = MeasuredGather};
const OpRule kCombineRule = {.kind = OpKind::kMemory,
                             .attributes = kCombineAttributes,
                             .infer = InferCombine,
                             .gradient = CombineGradient,
                             .shard = ShardCombine,
                             .flow = &kCombineFlow,
                             .cost = CombineCost,
                             .overwrites = CombineOverwrites,
                             .recompute = RecomputeCost::kCheap,
                             .measured = MeasuredCombine};
const OpRule kCombineBackwardRule = {.kind = OpKind::kMemory,
                                     .attributes = kSplitAttributes,
                                     .infer = InferBackward,
                                     .flow = &kBackwardFlow,
                                     .cost = BackwardCost,
                                     .measured = MeasuredBackward};

}  // namespace temper
