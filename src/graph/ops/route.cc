// Route: which experts a token is sent to, with which weights, and where its rows lie among those of all experts. T
// tokens with A experts each are P = T*A rows whoever is routed where, so shapes are static and no token is dropped.
// Rows are sorted by expert, those of an expert by token. Which experts are chosen has no gradient; their weights do.
#include "graph/ops/route.h"

#include <fmt/core.h>

#include <limits>
#include <string>

#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

constexpr int kLogits = 0, kBias = 1;

Types TypesOf(const RouteSpec& s, DType logits) {
  return {
      {StatisticDType(logits), {s.tokens, s.active}}, {DType::kI32, {s.tokens, s.active}}, {DType::kI32, {s.rows()}}};
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const RouteSpec s = in.empty() ? RouteSpec() : RouteSpecOf(in[kLogits], a);
  if (s.active == 0 || !IsFloat(in[kLogits]) || s.rows() > std::numeric_limits<int32_t>::max() ||
      in.size() != 1u + s.bias ||
      (s.bias && !(in[kBias] == TensorType{StatisticDType(in[kLogits].dtype), {s.experts}}))) {
    return BadOperands(Op::kRoute, "(logits_TE, [bias_E f32]) with active of E, of enough groups that divide E", in, a);
  }
  return TypesOf(s, in[kLogits].dtype);
}

// An exponential of each score, and a pass over them per choice.
Cost ForwardCost(const Types& in, const Types& out, const Attributes& a) {
  const auto active = static_cast<double>(a.Int("active"));
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {static_cast<double>(in[kLogits].shape.elements()) * (10 + active)};
  return cost;
}
// Of a thread: scores, those by which it chooses, those of groups. Of all: the experts of each token, rows of experts.
Bytes ForwardWorkspace(const Types& in, const Types& out, const Attributes&, int threads) {
  const int64_t experts = in[kLogits].shape[1];
  return AlignUp(Bytes{(3 * experts * threads + out[1].shape.elements() + experts) * 4}, 64);
}

void Gradient(GradientSink& sink) {
  const ValueId d_weight = sink.OutputGradient(0);
  if (!sink.Needs(kLogits) || d_weight == kNoValue) return;
  const Node& node = sink.node();
  Attributes attributes = node.attributes;
  attributes.Set("bias", int64_t{0});  // it only chooses
  sink.Contribute(kLogits,
                  sink.Emit(Op::kRouteBackward, {d_weight, node.inputs[kLogits], node.outputs[1], node.outputs[2]},
                            std::move(attributes))[0]);
}

// A rank routes the tokens of its rows. Tensor ranks compute parts of every expert, so they all route all tokens, and
// use the weights each on its own terms. So do the ranks of ep, each of which has some of the experts.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  if (sink.mesh().size(Axis::kRow) > 1 || sink.mesh().size(Axis::kDepth) > 1) {
    return sink.Refuse("experts are not supported in the 2-D modes of tensor parallelism: use mesh.tp_mode 1d");
  }
  Sharding logits = sink.Settled(sink.sharding(kLogits));
  AxisSet sharers = kTensorAxes;
  // A single expert is that of all tokens, which no rank has alone.
  const int64_t experts = sink.value(node.inputs[kLogits]).type.shape[1];
  if (experts > 1) sharers |= Axis::kEp;
  if (const int ranks = sink.mesh().size(Axis::kEp); experts > 1 && experts % ranks != 0) {
    std::string work;
    for (int64_t n = 2; n <= experts; ++n) {
      if (experts % n == 0) work += fmt::format("{}{}", work.empty() ? "" : ", ", n);
    }
    return sink.Refuse(
        fmt::format("{} experts do not divide among {} ranks of mesh.ep; sizes that work: {}", experts, ranks, work));
  }
  for (const Axis axis : logits.split(1).axes()) logits = Gathered(logits, 1, axis);
  for (const Axis axis : (logits.split(0) & sharers).axes()) logits = Gathered(logits, 0, axis);
  Sharding chosen = logits;
  std::vector<ValueId> inputs = {sink.Use(kLogits, logits)};
  if (inputs.size() < node.inputs.size()) inputs.push_back(sink.Use(kBias, VectorBeside(logits, 1, sink.mesh())));
  const auto outputs = sink.Emit(Op::kRoute, std::move(inputs), node.attributes, {chosen, chosen, chosen});
  for (int i = 0; i < 3; ++i) sink.Deliver(i, outputs[static_cast<size_t>(i)]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const RouteSpec s = in.size() == 4 ? RouteSpecOf(in[1], a) : RouteSpec();
  if (s.active == 0 || s.bias || !IsFloat(in[1]) || !(Types{in[0], in[2], in[3]} == TypesOf(s, in[1].dtype))) {
    return BadOperands(Op::kRouteBackward, "(d_weight_TA f32, logits_TE, place_TA, expert_P)", in, a);
  }
  return Types{in[1]};
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 10);
}
// A thread's scores.
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes&, int threads) {
  return AlignUp(Bytes{in[1].shape[1] * threads * 4}, 64);
}

constexpr AttributeSpec kAttributes[] = {
    Size("active"),          Flag("sigmoid"),        Flag("normalise"),         Flag("bias"),
    OptionalDouble("scale"), OptionalSize("groups"), OptionalSize("top_groups")};

constexpr FlowOperand kForwardIn[] = {{"Te"}, {"e", false, "bias"}};
constexpr uint16_t kChoice = Factors({0, 1});
constexpr FlowOutput kForwardOut[] = {{"Ta", {kChoice}}, {"Ta", {kChoice}}, {"T", {kChoice}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kBackwardIn[] = {LinearIn("Ta"), {"Te"}, {"Ta"}, {"T"}};
constexpr FlowOutput kBackwardOut[] = {{"Te", {Factors({0, 1, 2, 3})}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

}  // namespace

const OpRule kRouteRule = {.kind = OpKind::kMemory,
                           .attributes = kAttributes,
                           .infer = Infer,
                           .gradient = Gradient,
                           .shard = ShardOperands,
                           .flow = &kForwardFlow,
                           .cost = ForwardCost,
                           .workspace = ForwardWorkspace,
                           .recompute = RecomputeCost::kCheap};
const OpRule kRouteBackwardRule = {.kind = OpKind::kMemory,
                                   .attributes = kAttributes,
                                   .infer = InferBackward,
                                   .flow = &kBackwardFlow,
                                   .cost = BackwardCost,
                                   .workspace = BackwardWorkspace};

}  // namespace temper
