// LayerNorm: y = (x - mean) * rstd * w + b over the last dim, variance without Bessel's correction (Ba et al. 2016;
// torch). plus_one: 1 + w in the place of w (transformers, NemotronLayerNorm1P).
//
// Grouped: a norm of its own for every E elements of a row, the width of a head; statistics are then [T, G], G groups.
// Groups share w_E and b_E (transformers, PersimmonAttention's q_layernorm), or each has its own, a row of w_GE
// (CohereAttention's q_norm). unshifted: without b; of groups alone.
#include <fmt/core.h>

#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

bool IsScale(const TensorType& w, const TensorType& x_TD, const Attributes& a) {
  const int64_t D = x_TD.shape[1];
  if (!a.Flag("grouped")) return !a.Flag("unshifted") && IsFloatVector(w, D);
  if (w.shape.rank() == 2) return IsFloat(w) && w.shape.elements() == D && D > 0;
  return w.shape.rank() == 1 && w.shape[0] > 0 && D % w.shape[0] == 0 && IsFloatVector(w, w.shape[0]);
}
// One for each row, or for each group of a row. REQUIRES: IsScale(w, x_TD, a).
TensorType StatisticOf(const TensorType& x_TD, const TensorType& w, const Attributes& a) {
  const DType dtype = StatisticDType(x_TD.dtype);
  if (!a.Flag("grouped")) return {dtype, {x_TD.shape[0]}};
  return {dtype, {x_TD.shape[0], x_TD.shape[1] / w.shape[w.shape.rank() - 1]}};
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const bool shifted = !a.Flag("unshifted");
  if (in.size() != 2u + shifted || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsScale(in[1], in[0], a) ||
      (shifted && !(in[2] == in[1]))) {
    return BadOperands(Op::kLayerNorm, "(x_TD, w_D, [b_D]), grouped w_E or w_GE", in, a);
  }
  const TensorType statistic = StatisticOf(in[0], in[1], a);
  return Types{in[0], statistic, statistic};
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 7);
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  const bool shifted = !node.attributes.Flag("unshifted");
  const bool grad_w = sink.Needs(1), grad_b = shifted && sink.Needs(2);
  if (!sink.Needs(0) && !grad_w) return;
  TEMPER_CHECK(grad_w || !grad_b) << "the bias of a layer_norm is trained without its weight";
  std::vector<ValueId> inputs = {sink.OutputGradient(0), node.inputs[0], node.inputs[1], node.outputs[1],
                                 node.outputs[2]};
  const ValueId acc = sink.Needs(0) ? sink.Pending(0) : kNoValue;
  // Of a norm whose bias is constant nothing pends for it: its weight's gradient is added up by a node of its own.
  const bool acc_w = grad_w && (grad_b || !shifted) && sink.Pending(1) != kNoValue;
  if (acc != kNoValue) inputs.push_back(acc);
  if (acc_w) inputs.push_back(sink.Pending(1));
  if (acc_w && shifted) inputs.push_back(sink.Pending(2));
  Attributes attributes = {{"acc", int64_t{acc != kNoValue}}, {"grad_w", int64_t{grad_w}}, {"acc_w", int64_t{acc_w}}};
  for (const char* form : {"plus_one", "grouped", "unshifted"}) {
    if (node.attributes.Flag(form)) attributes.Set(form, int64_t{1});
  }
  const auto outputs = sink.Emit(Op::kLayerNormBackward, inputs, std::move(attributes));
  if (sink.Needs(0)) sink.Deliver(0, outputs[0]);
  if (grad_b) {
    sink.Deliver(1, outputs[1]);
    sink.Deliver(2, outputs[2]);
  } else if (grad_w && !shifted) {
    sink.Deliver(1, outputs[1]);
  } else if (grad_w) {
    sink.Contribute(1, outputs[1]);
  }
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const size_t parameters = a.Flag("unshifted") ? 1 : 2, sums = 5 + a.Flag("acc");
  const size_t want = sums + (a.Flag("acc_w") ? parameters : 0);
  if (in.size() != want || !IsMatrix(in[0]) || !IsFloat(in[0]) || !(in[0] == in[1]) || !IsScale(in[2], in[0], a) ||
      !(in[3] == StatisticOf(in[0], in[2], a)) || !(in[4] == in[3]) || (a.Flag("acc") && !(in[5] == in[0]))) {
    return BadOperands(Op::kLayerNormBackward, "(d_y_TD, x_TD, w_D, mean_T, rstd_T, [acc_TD], [acc_w_D, [acc_b_D]])",
                       in, a);
  }
  Types out = {in[0]};
  const TensorType d_w{GradientDType(in[0].dtype), in[2].shape};
  if (a.Flag("grad_w")) out.insert(out.end(), parameters, d_w);
  bool good = a.Flag("grad_w") || !a.Flag("acc_w");
  for (size_t i = sums; i < want; ++i) good = good && in[i] == d_w;
  if (!good) return BadOperands(Op::kLayerNormBackward, "acc like d_w, d_b", in, a);
  return out;
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 12);
}

// d_w and d_b are summed by fixed blocks of rows (of groups that share w): two partial rows per 64 rows.
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes& a, int) {
  if (!a.Flag("grad_w")) return {};
  const int64_t rows = in[2].shape.rank() == 2 ? in[0].shape[0] : in[3].shape.elements();
  const int64_t partial = (rows + 63) / 64 * in[2].shape.elements() * SizeOf(GradientDType(in[0].dtype));
  return {a.Flag("unshifted") ? partial : 2 * partial};
}

// Grouped: groups stay where they are.
void ShardLayerNorm(ShardingSink& sink) {
  const Node& node = sink.node();
  if (!node.attributes.Flag("grouped")) return ShardNorm(sink);
  const Sharding p = sink.Settled(sink.sharding(0));
  const Shape &x = sink.value(node.inputs[0]).type.shape, &w = sink.value(node.inputs[1]).type.shape;
  const int64_t width = w[w.rank() - 1], parts = sink.mesh().size(p.split(1));
  if (x[1] / width % parts != 0) {
    return sink.Refuse(fmt::format("{} heads, of which each is normed, do not divide among {} ranks of {}",
                                   x[1] / width, parts, p.split(1).ToString()));
  }
  const Sharding scale = w.rank() == 2 ? VectorBeside(p, 1, sink.mesh()) : WholeBeside(p, sink.mesh());
  std::vector<ValueId> inputs = {sink.Use(0, p)};
  for (int i = 1; i < static_cast<int>(node.inputs.size()); ++i) inputs.push_back(sink.Use(i, scale));
  const auto outputs = sink.Emit(Op::kLayerNorm, std::move(inputs), node.attributes, {p, p, p});
  for (int i = 0; i < 3; ++i) sink.Deliver(i, outputs[static_cast<size_t>(i)]);
}

// d_x over acc, d_w over acc_w, d_b over acc_b.
int Overwrites(const Attributes& a, int, int output) {
  if (output == 0) return a.Flag("acc") ? 5 : -1;
  return a.Flag("acc_w") ? 4 + a.Flag("acc") + output : -1;
}

constexpr AttributeSpec kAttributes[] = {Double("eps"), Flag("plus_one"), Flag("grouped"), Flag("unshifted")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("acc"),      Flag("grad_w"),  Flag("acc_w"),
                                                 Flag("plus_one"), Flag("grouped"), Flag("unshifted")};

constexpr FlowOperand kForwardIn[] = {{"Td"}, {"d"}, {"d"}};
constexpr FlowOutput kForwardOut[] = {{"Td", {Factors({0, 1, 2})}}, {"T", {Factors({0})}}, {"T", {Factors({0})}}};
// G: groups; one scale for all has the last letter alone.
constexpr FlowOperand kGroupedIn[] = {{"TG"}, {"Ge"}, {"Ge"}};
constexpr FlowOutput kGroupedOut[] = {{"TG", {Factors({0, 1, 2})}}, {"TG", {Factors({0})}}, {"TG", {Factors({0})}}};
constexpr FlowRule kGroupedFlow = {.in = kGroupedIn, .out = kGroupedOut};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut, .flag = "grouped", .flagged = &kGroupedFlow};
constexpr FlowOperand kBackwardIn[] = {
    LinearIn("Td"), {"Td"}, {"d"}, {"T"}, {"T"}, LinearIn("Td", "acc"), LinearIn("d", "acc_w"), LinearIn("d", "acc_w")};
constexpr FlowOutput kBackwardOut[] = {{"Td", {Factors({0, 1, 2, 3, 4}), Factors({5})}},
                                       {"d", {Factors({0, 1, 3, 4}), Factors({6})}, "grad_w"},
                                       {"d", {Factors({0}), Factors({7})}, "grad_w"}};
constexpr FlowOperand kGroupedBackwardIn[] = {
    LinearIn("TG"),         {"TG"}, {"Ge"}, {"TG"}, {"TG"}, LinearIn("TG", "acc"), LinearIn("Ge", "acc_w"),
    LinearIn("Ge", "acc_w")};
constexpr FlowOutput kGroupedBackwardOut[] = {{"TG", {Factors({0, 1, 2, 3, 4}), Factors({5})}},
                                              {"Ge", {Factors({0, 1, 3, 4}), Factors({6})}, "grad_w"},
                                              {"Ge", {Factors({0}), Factors({7})}, "grad_w"}};
// Operands that are not there come last.
constexpr FlowRule kUnshiftedBackwardFlow = {.in = kGroupedBackwardIn, .out = std::span(kGroupedBackwardOut).first(2)};
constexpr FlowRule kGroupedBackwardFlow = {
    .in = kGroupedBackwardIn, .out = kGroupedBackwardOut, .flag = "unshifted", .flagged = &kUnshiftedBackwardFlow};
constexpr FlowRule kBackwardFlow = {
    .in = kBackwardIn, .out = kBackwardOut, .flag = "grouped", .flagged = &kGroupedBackwardFlow};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAtExtents(dtype, {{"eps", 1e-5}}, [](const TensorType& x) {
    const TensorType w{x.dtype, {x.shape[1]}};
    return Types{x, w, w};
  });
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredAtExtents(dtype, {{"acc", int64_t{1}}, {"grad_w", int64_t{0}}, {"acc_w", int64_t{0}}},
                           [](const TensorType& x) {
                             const TensorType statistic{DType::kF32, {x.shape[0]}};
                             return Types{x, x, {x.dtype, {x.shape[1]}}, statistic, statistic, x};
                           });
}

}  // namespace

const OpRule kLayerNormRule = {.kind = OpKind::kMemory,
                               .attributes = kAttributes,
                               .infer = Infer,
                               .gradient = Gradient,
                               .shard = ShardLayerNorm,
                               .flow = &kForwardFlow,
                               .cost = ForwardCost,
                               .recompute = RecomputeCost::kCheap,
                               .measured = Measured};
const OpRule kLayerNormBackwardRule = {.kind = OpKind::kMemory,
                                       .attributes = kBackwardAttributes,
                                       .infer = InferBackward,
                                       .flow = &kBackwardFlow,
                                       .cost = BackwardCost,
                                       .workspace = BackwardWorkspace,
                                       .in_place_input = 5,
                                       .overwrites = Overwrites,
                                       .measured = MeasuredBackward};

}  // namespace temper
