// RMSNorm: y = x * rstd * w, rstd = 1/sqrt(mean(x^2) + eps) (Zhang & Sennrich 2019; transformers, LlamaRMSNorm).
// Grouped: a norm of its own for every w's width of a row's elements, as the norms of each head's q and k are
// (transformers, Qwen3RMSNorm of q_norm); rstd is then [T, G], G groups. `groups` of so many: each has scales of its
// own, and w is as wide as a row (transformers, NemotronHRMSNormGated). plus_one: 1 + w in the place of w
// (transformers, Gemma2RMSNorm). Its backward takes the residual's gradient as `acc`, which saves a pass over the
// activations.
#include <fmt/core.h>

#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

bool IsScale(const TensorType& w, const TensorType& x_TD, const Attributes& a) {
  const int64_t width = w.shape.rank() == 1 ? w.shape[0] : 0, groups = a.IntOr("groups", 0);
  if (groups < 0 || (groups > 0 && (!a.Flag("grouped") || x_TD.shape[1] % groups != 0))) return false;
  const bool of_group = a.Flag("grouped") && groups == 0;
  const bool fits = of_group ? width > 0 && x_TD.shape[1] % width == 0 : width == x_TD.shape[1];
  return fits && IsFloatVector(w, width);
}
// rstd: one for each row, or for each group of a row.
TensorType StatisticOf(const TensorType& x_TD, const TensorType& w, const Attributes& a) {
  const DType dtype = StatisticDType(x_TD.dtype);
  if (!a.Flag("grouped")) return {dtype, {x_TD.shape[0]}};
  const int64_t groups = a.IntOr("groups", 0);
  return {dtype, {x_TD.shape[0], groups > 0 ? groups : x_TD.shape[1] / w.shape[0]}};
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsScale(in[1], in[0], a)) {
    return BadOperands(Op::kRmsNorm, "(x_TD, w_D), grouped (x_T(G*E), w_E), of groups (x_T(G*E), w_(G*E))", in, a);
  }
  return Types{in[0], StatisticOf(in[0], in[1], a)};
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 4);
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  // d_w and d_x come from one pass over d_y and x; where only d_w is wanted, d_x is made and left unused.
  if (!sink.Needs(0) && !sink.Needs(1)) return;
  std::vector<ValueId> inputs = {sink.OutputGradient(0), node.inputs[0], node.inputs[1], node.outputs[1]};
  const ValueId acc = sink.Needs(0) ? sink.Pending(0) : kNoValue;
  const ValueId acc_w = sink.Needs(1) ? sink.Pending(1) : kNoValue;
  if (acc != kNoValue) inputs.push_back(acc);
  if (acc_w != kNoValue) inputs.push_back(acc_w);
  Attributes attributes = {
      {"acc", int64_t{acc != kNoValue}}, {"grad_w", int64_t{sink.Needs(1)}}, {"acc_w", int64_t{acc_w != kNoValue}}};
  for (const char* form : {"grouped", "plus_one"}) {
    if (node.attributes.Flag(form)) attributes.Set(form, int64_t{1});
  }
  if (node.attributes.Has("groups")) attributes.Set("groups", node.attributes.Int("groups"));
  const auto outputs = sink.Emit(Op::kRmsNormBackward, inputs, std::move(attributes));
  if (sink.Needs(0)) sink.Deliver(0, outputs[0]);
  if (sink.Needs(1)) sink.Deliver(1, outputs[1]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const size_t want = 4 + a.Flag("acc") + a.Flag("acc_w");
  if (in.size() != want || !IsMatrix(in[0]) || !IsFloat(in[0]) || !(in[0] == in[1]) || !IsScale(in[2], in[0], a) ||
      !(in[3] == StatisticOf(in[0], in[2], a)) || (a.Flag("acc") && !(in[4] == in[0]))) {
    return BadOperands(Op::kRmsNormBackward, "(d_y_TD, x_TD, w_D, rstd_T, [acc_TD], [acc_w_D])", in, a);
  }
  Types out = {in[0]};
  if (a.Flag("grad_w")) out.push_back({GradientDType(in[0].dtype), in[2].shape});
  if (a.Flag("acc_w") && !(a.Flag("grad_w") && in.back() == out.back()))
    return BadOperands(Op::kRmsNormBackward, "acc_w like d_w", in, a);
  return out;
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 8);
}

// d_w is summed by fixed blocks of rows (of groups that share w): one f32 (f64) partial row per 64 rows.
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes& a, int) {
  if (!a.Flag("grad_w")) return {};
  const int64_t rows = a.IntOr("groups", 0) > 0 ? in[0].shape[0] : in[3].shape.elements();
  return {(rows + 63) / 64 * in[2].shape[0] * SizeOf(GradientDType(in[0].dtype))};
}

// Grouped: groups stay where they are.
void ShardRmsNorm(ShardingSink& sink) {
  if (!sink.node().attributes.Flag("grouped")) return ShardNorm(sink);
  const Sharding p = sink.Settled(sink.sharding(0));
  const Node& node = sink.node();
  const TensorType &x = sink.value(node.inputs[0]).type, &w = sink.value(node.inputs[1]).type;
  if (const int64_t groups = node.attributes.IntOr("groups", 0); groups > 0) {
    const int64_t parts = sink.mesh().size(p.split(1));
    if (groups % parts != 0) {
      return sink.Refuse(fmt::format("{} groups of heads, of which each is normed, do not divide among {} ranks of {}",
                                     groups, parts, p.split(1).ToString()));
    }
    Attributes attributes = node.attributes;
    attributes.Set("groups", groups / parts);
    const auto outputs = sink.Emit(Op::kRmsNorm, {sink.Use(0, p), sink.Use(1, VectorBeside(p, 1, sink.mesh()))},
                                   std::move(attributes), {p, p});
    for (int i = 0; i < 2; ++i) sink.Deliver(i, outputs[static_cast<size_t>(i)]);
    return;
  }
  if (sink.box(x.shape, p).shape[1] % w.shape[0] != 0) {
    return sink.Refuse(fmt::format("{} heads, of which each is normed, do not divide among {} ranks of {}",
                                   x.shape[1] / w.shape[0], sink.mesh().size(p.split(1)), p.split(1).ToString()));
  }
  const std::vector<ValueId> inputs = {sink.Use(0, p), sink.Use(1, WholeBeside(p, sink.mesh()))};
  const auto outputs = sink.Emit(Op::kRmsNorm, inputs, node.attributes, {p, p});
  for (int i = 0; i < 2; ++i) sink.Deliver(i, outputs[static_cast<size_t>(i)]);
}

// d_x over acc, d_w over acc_w.
int Overwrites(const Attributes& a, int num_inputs, int output) {
  if (output == 0) return a.Flag("acc") ? 4 : -1;
  return a.Flag("acc_w") ? num_inputs - 1 : -1;
}

constexpr AttributeSpec kAttributes[] = {Double("eps"), Flag("grouped"), OptionalSize("groups"), Flag("plus_one")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("acc"),     Flag("grad_w"),         Flag("acc_w"),
                                                 Flag("grouped"), OptionalSize("groups"), Flag("plus_one")};

constexpr FlowOperand kForwardIn[] = {{"Td"}, {"d"}};
constexpr FlowOutput kForwardOut[] = {{"Td", {Factors({0, 1})}}, {"T", {Factors({0})}}};
// G: groups.
constexpr FlowOperand kGroupedIn[] = {{"TG"}, {"e"}};
constexpr FlowOutput kGroupedOut[] = {{"TG", {Factors({0, 1})}}, {"TG", {Factors({0})}}};
constexpr FlowOperand kOwnScalesIn[] = {{"TG"}, {"G"}};
constexpr FlowRule kOwnScalesFlow = {.in = kOwnScalesIn, .out = kGroupedOut};
constexpr FlowRule kGroupedFlow = {.in = kGroupedIn, .out = kGroupedOut, .flag = "groups", .flagged = &kOwnScalesFlow};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut, .flag = "grouped", .flagged = &kGroupedFlow};
constexpr FlowOperand kBackwardIn[] = {LinearIn("Td"),        {"Td"}, {"d"}, {"T"}, LinearIn("Td", "acc"),
                                       LinearIn("d", "acc_w")};
constexpr FlowOutput kBackwardOut[] = {{"Td", {Factors({0, 1, 2, 3}), Factors({4})}},
                                       {"d", {Factors({0, 1, 3}), Factors({5})}, "grad_w"}};
constexpr FlowOperand kGroupedBackwardIn[] = {LinearIn("TG"),        {"TG"}, {"e"}, {"TG"}, LinearIn("TG", "acc"),
                                              LinearIn("e", "acc_w")};
constexpr FlowOutput kGroupedBackwardOut[] = {{"TG", {Factors({0, 1, 2, 3}), Factors({4})}},
                                              {"e", {Factors({0, 1, 3}), Factors({5})}, "grad_w"}};
constexpr FlowOperand kOwnScalesBackwardIn[] = {LinearIn("TG"),        {"TG"}, {"G"}, {"TG"}, LinearIn("TG", "acc"),
                                                LinearIn("G", "acc_w")};
constexpr FlowOutput kOwnScalesBackwardOut[] = {{"TG", {Factors({0, 1, 2, 3}), Factors({4})}},
                                                {"G", {Factors({0, 1, 3}), Factors({5})}, "grad_w"}};
constexpr FlowRule kOwnScalesBackwardFlow = {.in = kOwnScalesBackwardIn, .out = kOwnScalesBackwardOut};
constexpr FlowRule kGroupedBackwardFlow = {
    .in = kGroupedBackwardIn, .out = kGroupedBackwardOut, .flag = "groups", .flagged = &kOwnScalesBackwardFlow};
constexpr FlowRule kBackwardFlow = {
    .in = kBackwardIn, .out = kBackwardOut, .flag = "grouped", .flagged = &kGroupedBackwardFlow};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAtExtents(dtype, {{"eps", 1e-5}}, [](const TensorType& x) {
    return Types{x, {x.dtype, {x.shape[1]}}};
  });
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredAtExtents(dtype, {{"acc", int64_t{1}}, {"grad_w", int64_t{0}}, {"acc_w", int64_t{0}}},
                           [](const TensorType& x) {
                             const TensorType rstd{DType::kF32, {x.shape[0]}};
                             return Types{x, x, {x.dtype, {x.shape[1]}}, rstd, x};
                           });
}

}  // namespace

const OpRule kRmsNormRule = {.kind = OpKind::kMemory,
                             .attributes = kAttributes,
                             .infer = Infer,
                             .gradient = Gradient,
                             .shard = ShardRmsNorm,
                             .flow = &kForwardFlow,
                             .cost = ForwardCost,
                             .recompute = RecomputeCost::kCheap,
                             .measured = Measured};
const OpRule kRmsNormBackwardRule = {.kind = OpKind::kMemory,
                                     .attributes = kBackwardAttributes,
                                     .infer = InferBackward,
                                     .flow = &kBackwardFlow,
                                     .cost = BackwardCost,
                                     .workspace = BackwardWorkspace,
                                     .in_place_input = 4,
                                     .overwrites = Overwrites,
                                     .measured = MeasuredBackward};

}  // namespace temper
