// Grouped linear: each row's product with the matrix of its expert, y_p = scale * x_p w_e^T + acc_p, of weights stacked
// [experts, out, in]. Rows of an expert follow each other (graph/ops/route.cc). An expert without rows costs nothing,
// and its gradient is zero. How many rows an expert has does not change a row's bits.
//
// A rank of the mesh axis ep has some of the experts: those from `begin` on of `whole`. Rows of others give zeros, and
// nothing to gradients of weights. `split` names the axis.
#include <fmt/core.h>

#include <algorithm>

#include "graph/ops/matrix_product.h"
#include "graph/ops/routed_rows.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"
#include "tensor/packable.h"

namespace temper {
namespace {

constexpr int kRows = 0, kWeight = 1, kExpert = 2;

bool IsStack(const TensorType& w) {
  return w.shape.rank() == 3 && w.shape[0] > 0 && (!w.packed() || IsPackable(w));
}
// Of a stack's experts among all.
struct OwnExperts {
  int64_t begin = 0, count = 0, whole = 0;
  bool good() const { return begin <= whole && count <= whole - begin; }
  double share() const { return static_cast<double>(count) / static_cast<double>(whole); }
};
OwnExperts OwnOf(int64_t count, const Attributes& a) {
  return {.begin = a.IntOr("begin", 0), .count = count, .whole = a.IntOr("whole", count)};
}
void CopyPart(const Attributes& from, Attributes* to) {
  if (!from.Has("split")) return;
  to->Set("begin", from.Int("begin"));
  to->Set("whole", from.Int("whole"));
  to->Set("split", from.String("split"));
}
bool GoodSplit(const Attributes& a) {
  return !a.Has("split") || AxisSet::Parse(a.String("split")).ok();
}

bool AreOperands(const Types& in, const Attributes& a) {
  return in.size() == 3u + a.Flag("acc") && IsMatrix(in[kRows]) && IsFloat(in[kRows]) && IsStack(in[kWeight]) &&
         in[kWeight].dtype.compute() == in[kRows].dtype && IsIndex(in[kExpert], in[kRows].shape[0]) &&
         OwnOf(in[kWeight].shape[0], a).good() && GoodSplit(a);
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (!AreOperands(in, a) || in[kRows].shape[1] != in[kWeight].shape[2] || a.Int("active") == 0 ||
      in[kRows].shape[0] % a.Int("active") != 0) {
    return BadOperands(Op::kGroupedLinear, "(x_PI, w_EOI, expert_P, [acc_PO]) with P a multiple of active", in, a);
  }
  const TensorType y{in[kRows].dtype, {in[kRows].shape[0], in[kWeight].shape[1]}};
  if (a.Flag("acc") && !(in.back() == y)) return BadOperands(Op::kGroupedLinear, "acc_PO like y", in, a);
  return Types{y};
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  const ValueId d_y = sink.OutputGradient(0);
  const double scale = node.attributes.DoubleOr("scale", 1.0);
  const auto emit = [&](Op op, std::vector<ValueId> inputs, int target, Attributes attributes) {
    const ValueId acc = sink.Pending(target);
    if (acc != kNoValue) inputs.push_back(acc);
    attributes.Set("acc", int64_t{acc != kNoValue});
    CopyPart(node.attributes, &attributes);
    if (scale != 1.0) attributes.Set("scale", scale);
    sink.Deliver(target, sink.Emit(op, std::move(inputs), std::move(attributes))[0]);
  };
  const ValueId expert = node.inputs[kExpert], w = node.inputs[kWeight];
  if (sink.Needs(kWeight)) {
    emit(Op::kGroupedLinearDw, {d_y, node.inputs[kRows], expert}, kWeight,
         {{"matrices", sink.value(w).type.shape[0]}, {"active", node.attributes.Int("active")}});
  }
  if (sink.Needs(kRows)) {
    emit(Op::kGroupedLinearDx, {d_y, w, expert}, kRows, {{"active", node.attributes.Int("active")}});
  }
  if (node.attributes.Flag("acc") && sink.Needs(3)) sink.Contribute(3, d_y);
}

// As linear's, of every expert: ranks that have rows of their own gather the weights, tensor ranks have columns or
// terms of all rows. Ranks of ep have all rows and some of the experts; what they make is right in the rows of these,
// which is what a rank reads of it, and zero elsewhere: `varying`, until combine adds terms up.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding x = sink.sharding(kRows), w = sink.sharding(kWeight), y;
  Attributes attributes = node.attributes;
  if (sink.mesh().size(Axis::kEp) > 1) {
    const Value& stack = sink.value(node.inputs[kWeight]);
    if (w.dims[0].empty() || w.dims[0][0] != Axis::kEp) {
      return sink.Refuse(
          fmt::format("{} is split '{}', but mesh.ep deals experts to ranks: its first dim has to be "
                      "split over ep first, such as 'ep+fsdp,-,-'",
                      stack.name, w.ToString(3)));
    }
    if (attributes.Flag("acc") && !sink.sharding(3).varying.Has(Axis::kEp)) {
      return sink.Refuse(
          "experts with biases are not dealt to ranks: use mesh.fsdp, mesh.tp or mesh.pp instead of "
          "mesh.ep");
    }
    Sharding own;
    own.dims[0] = {Axis::kEp};
    attributes.Set("begin", sink.box(stack.type.shape, own).begin[0]);
    attributes.Set("whole", stack.type.shape[0]);
    attributes.Set("split", AxisSet(Axis::kEp).ToString());
    x.varying |= Axis::kEp;
    y.varying |= Axis::kEp;
  }
  for (const Axis axis : (sink.mesh().axes() - Axis::kEp).axes()) {
    int of_x = x.DimOf(axis), of_w = w.DimOf(axis);
    if (of_w == 0 || (of_x == 0 && of_w > 0)) {
      w = Gathered(w, of_w, axis);
      of_w = -1;
    }
    if (of_x == 1 && of_w != 2) {
      x = Gathered(x, of_x, axis);
      of_x = -1;
    }
    if (of_x < 0 && of_w == 2) {
      return sink.Refuse(fmt::format("{} is split along its input dim over {}, but its other operand is not",
                                     sink.value(node.inputs[kWeight]).name, ToString(axis)));
    }
    if (of_w == 1) {
      if (x.partial.Has(axis)) x = sink.Settled(x);
      if (x.DimOf(axis) < 0) x.varying |= axis;
    } else if (of_w == 2) {
      y.partial |= axis;
    } else {
      const bool whole = of_x < 0 && !x.varying.Has(axis) && !x.partial.Has(axis);
      // An adapter's stack is used by each rank on its own terms (unstack).
      if (whole && w.varying.Has(axis)) x.varying |= axis;
      if (!whole) w.varying |= axis;
      if (x.partial.Has(axis)) y.partial |= axis;
      if (x.varying.Has(axis)) y.varying |= axis;
    }
  }
  if (x.dims[1] != w.dims[2]) {
    return sink.Refuse(fmt::format("the columns of {} and of its other operand are split over {} in different orders",
                                   sink.value(node.inputs[kWeight]).name, w.split(2).ToString()));
  }
  y.dims[0] = x.dims[0];
  y.dims[1] = w.dims[1];
  Sharding expert = WholeBeside(x, sink.mesh());
  expert.dims[0] = x.dims[0];
  expert.varying = (expert.varying | w.split()) - expert.split();
  std::vector<ValueId> inputs = {sink.Use(kRows, x), sink.Use(kWeight, w), sink.Use(kExpert, expert)};
  DeliverWithAcc(sink, std::move(inputs), 3, y, std::move(attributes));
}

Result<Types> InferDx(const Types& in, const Attributes& a) {
  if (!AreOperands(in, a) || in[kRows].shape[1] != in[kWeight].shape[1] || a.Int("active") == 0 ||
      in[kRows].shape[0] % a.Int("active") != 0) {
    return BadOperands(Op::kGroupedLinearDx, "(d_y_PO, w_EOI, expert_P, [acc_PI])", in, a);
  }
  const TensorType d_x{in[kRows].dtype, {in[kRows].shape[0], in[kWeight].shape[2]}};
  if (a.Flag("acc") && !(in.back() == d_x)) return BadOperands(Op::kGroupedLinearDx, "acc_PI like d_x", in, a);
  return Types{d_x};
}

Result<Types> InferDw(const Types& in, const Attributes& a) {
  if (in.size() != 3u + a.Flag("acc") || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsMatrix(in[1]) ||
      in[1].dtype != in[0].dtype || in[1].shape[0] != in[0].shape[0] || !IsIndex(in[kExpert], in[0].shape[0]) ||
      a.Int("matrices") == 0 || a.Int("active") == 0 || in[0].shape[0] % a.Int("active") != 0 ||
      !OwnOf(a.Int("matrices"), a).good() || !GoodSplit(a)) {
    return BadOperands(Op::kGroupedLinearDw, "(d_y_PO, x_PI, expert_P, [acc_EOI])", in, a);
  }
  const TensorType d_w{GradientDType(in[0].dtype), {a.Int("matrices"), in[0].shape[1], in[1].shape[1]}};
  if (a.Flag("acc") && !(in[3] == d_w)) return BadOperands(Op::kGroupedLinearDw, "acc_EOI like d_w", in, a);
  return Types{d_w};
}

// `share`: of the rows that are this rank's, where experts are used alike.
Cost CostOf(const Types& in, const Types& out, const ProductDims& d, double share) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {2.0 * share * static_cast<double>(d.rows) * static_cast<double>(d.columns) *
                static_cast<double>(d.inner)};
  return cost;
}
ProductDims DimsOf(const Types& in) {
  return {.rows = in[0].shape[0], .columns = in[1].shape[1], .inner = in[0].shape[1]};
}
ProductDims DxDimsOf(const Types& in) {
  return {.rows = in[0].shape[0], .columns = in[1].shape[2], .inner = in[0].shape[1]};
}
ProductDims DwDimsOf(const Types& in) {
  return {.rows = in[0].shape[1], .columns = in[1].shape[1], .inner = in[0].shape[0]};
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes& a) {
  return CostOf(in, out, DimsOf(in), OwnOf(in[kWeight].shape[0], a).share());
}
Cost DxCost(const Types& in, const Types& out, const Attributes& a) {
  return CostOf(in, out, DxDimsOf(in), OwnOf(in[kWeight].shape[0], a).share());
}
Cost DwCost(const Types& in, const Types& out, const Attributes& a) {
  return CostOf(in, out, DwDimsOf(in), OwnOf(a.Int("matrices"), a).share());
}

// The first row of each expert, then the scratch of one product. An expert has a row per token at most.
Bytes FirstRowsBytes(int64_t experts) {
  return AlignUp(Bytes{(experts + 1) * 4}, 64);
}
// Of the largest plan: with more rows a product may take less, because it cuts them.
template <class ScratchOf>
Bytes OfPlans(int64_t most_rows, const ScratchOf& scratch_of) {
  Bytes bytes = scratch_of(most_rows);
  for (const int64_t rows : kRowsOfPlans) {
    if (rows < most_rows) bytes = std::max(bytes, scratch_of(rows));
  }
  return bytes;
}
Bytes ProductWorkspace(const Types& in, const Types& out, const Attributes& a, int threads) {
  return FirstRowsBytes(OwnOf(in[kWeight].shape[0], a).whole) +
         OfPlans(in[0].shape[0] / a.Int("active"), [&](int64_t rows) {
           return MatrixProductScratch(rows, out[0].shape[1], in[0].shape[1], out[0].dtype, true, threads,
                                       in[kWeight].packed());
         });
}
Bytes DwWorkspace(const Types& in, const Types& out, const Attributes& a, int threads) {
  return FirstRowsBytes(OwnOf(a.Int("matrices"), a).whole) +
         OfPlans(in[0].shape[0] / a.Int("active"), [&](int64_t rows) {
           return MatrixProductScratch(out[0].shape[1], out[0].shape[2], rows, out[0].dtype, false, threads);
         });
}

int ProductOverwrites(const Attributes& a, int num_inputs, int output) {
  return output == 0 && a.Flag("acc") ? num_inputs - 1 : -1;
}

// A token passes `active` matrices.
void AddModelWork(const Types& in, const Attributes& a, ModelWork* work) {
  work->weights += a.Int("active") * in[kWeight].shape[1] * in[kWeight].shape[2];
}

constexpr AttributeSpec kAttributes[] = {Flag("acc"),           OptionalDouble("scale"), Size("active"),
                                         OptionalSize("begin"), OptionalSize("whole"),   OptionalString("split")};
constexpr AttributeSpec kDwAttributes[] = {
    Flag("acc"),           OptionalDouble("scale"), Size("active"),         Size("matrices"),
    OptionalSize("begin"), OptionalSize("whole"),   OptionalString("split")};

constexpr FlowOperand DealtIn(const char* dims) {
  FlowOperand acc = LinearIn(dims, "acc");
  acc.dealt = true;
  return acc;
}
constexpr FlowOperand kForwardIn[] = {LinearIn("TI"), LinearIn("EOI"), {"T"}, DealtIn("TO")};
constexpr FlowOutput kForwardOut[] = {{.dims = "TO", .products = {Factors({0, 1, 2}), Factors({3})}, .dealt = true}};
constexpr FlowRule kForwardFlow = {
    .in = kForwardIn, .out = kForwardOut, .part = 'E', .part_axes = "split", .dealt = 'T'};
constexpr FlowOperand kDxIn[] = {LinearIn("TO"), LinearIn("EOI"), {"T"}, DealtIn("TI")};
constexpr FlowOutput kDxOut[] = {{.dims = "TI", .products = {Factors({0, 1, 2}), Factors({3})}, .dealt = true}};
constexpr FlowRule kDxFlow = {.in = kDxIn, .out = kDxOut, .part = 'E', .part_axes = "split", .dealt = 'T'};
constexpr FlowOperand kDwIn[] = {LinearIn("TO"), LinearIn("TI"), {"T"}, LinearIn("EOI", "acc")};
constexpr FlowOutput kDwOut[] = {{"EOI", {Factors({0, 1, 2}), Factors({3})}}};
constexpr FlowRule kDwFlow = {.in = kDwIn, .out = kDwOut, .part = 'E', .part_axes = "split", .dealt = 'T'};

}  // namespace

// Rates are those of the products of one matrix.
const OpRule kGroupedLinearRule = {.kind = OpKind::kProduct,
                                   .attributes = kAttributes,
                                   .infer = Infer,
                                   .gradient = Gradient,
                                   .shard = ShardOperands,
                                   .flow = &kForwardFlow,
                                   .cost = ForwardCost,
                                   .workspace = ProductWorkspace,
                                   .overwrites = ProductOverwrites,
                                   .product = DimsOf,
                                   .packed = {.input = kWeight, .layout = ElementLayout::kColumnPairs},
                                   .recompute = RecomputeCost::kExpensive,
                                   .model_work = AddModelWork,
                                   .measured_as = Op::kLinear};
const OpRule kGroupedLinearDxRule = {.kind = OpKind::kProduct,
                                     .attributes = kAttributes,
                                     .infer = InferDx,
                                     .flow = &kDxFlow,
                                     .cost = DxCost,
                                     .workspace = ProductWorkspace,
                                     .overwrites = ProductOverwrites,
                                     .product = DxDimsOf,
                                     .packed = {.input = kWeight, .layout = ElementLayout::kRowPairs},
                                     .measured_as = Op::kLinearDx};
const OpRule kGroupedLinearDwRule = {.kind = OpKind::kProduct,
                                     .attributes = kDwAttributes,
                                     .infer = InferDw,
                                     .flow = &kDwFlow,
                                     .cost = DwCost,
                                     .workspace = DwWorkspace,
                                     .in_place_input = 3,
                                     .product = DwDimsOf,
                                     .measured_as = Op::kLinearDw};

}  // namespace temper
