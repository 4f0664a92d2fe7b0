// Grouped linear: each row's product with the matrix of its expert, y_p = scale * x_p w_e^T + acc_p, of weights stacked
// [experts, out, in]. Rows of an expert follow each other (graph/ops/route.cc). An expert without rows costs nothing,
// and its gradient is zero. How many rows an expert has does not change a row's bits.
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
bool AreOperands(const Types& in, const Attributes& a) {
  return in.size() == 3u + a.Flag("acc") && IsMatrix(in[kRows]) && IsFloat(in[kRows]) && IsStack(in[kWeight]) &&
         in[kWeight].dtype.compute() == in[kRows].dtype && IsIndex(in[kExpert], in[kRows].shape[0]);
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
// terms of all rows. Experts are not dealt to ranks yet: a stack that is split by them is gathered.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding x = sink.sharding(kRows), w = sink.sharding(kWeight), y;
  for (const Axis axis : sink.mesh().axes().axes()) {
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
  DeliverWithAcc(sink, std::move(inputs), 3, y);
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
      a.Int("matrices") == 0 || a.Int("active") == 0 || in[0].shape[0] % a.Int("active") != 0) {
    return BadOperands(Op::kGroupedLinearDw, "(d_y_PO, x_PI, expert_P, [acc_EOI])", in, a);
  }
  const TensorType d_w{GradientDType(in[0].dtype), {a.Int("matrices"), in[0].shape[1], in[1].shape[1]}};
  if (a.Flag("acc") && !(in[3] == d_w)) return BadOperands(Op::kGroupedLinearDw, "acc_EOI like d_w", in, a);
  return Types{d_w};
}

Cost CostOf(const Types& in, const Types& out, int64_t rows, int64_t columns, int64_t inner) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner)};
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
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  const ProductDims d = DimsOf(in);
  return CostOf(in, out, d.rows, d.columns, d.inner);
}
Cost DxCost(const Types& in, const Types& out, const Attributes&) {
  const ProductDims d = DxDimsOf(in);
  return CostOf(in, out, d.rows, d.columns, d.inner);
}
Cost DwCost(const Types& in, const Types& out, const Attributes&) {
  const ProductDims d = DwDimsOf(in);
  return CostOf(in, out, d.rows, d.columns, d.inner);
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
  return FirstRowsBytes(in[kWeight].shape[0]) + OfPlans(in[0].shape[0] / a.Int("active"), [&](int64_t rows) {
           return MatrixProductScratch(rows, out[0].shape[1], in[0].shape[1], out[0].dtype, true, threads,
                                       in[kWeight].packed());
         });
}
Bytes DwWorkspace(const Types& in, const Types& out, const Attributes& a, int threads) {
  return FirstRowsBytes(a.Int("matrices")) + OfPlans(in[0].shape[0] / a.Int("active"), [&](int64_t rows) {
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

constexpr AttributeSpec kAttributes[] = {Flag("acc"), OptionalDouble("scale"), Size("active")};
constexpr AttributeSpec kDwAttributes[] = {Flag("acc"), OptionalDouble("scale"), Size("active"), Size("matrices")};

constexpr FlowOperand kForwardIn[] = {LinearIn("TI"), LinearIn("eOI"), {"T"}, LinearIn("TO", "acc")};
constexpr FlowOutput kForwardOut[] = {{"TO", {Factors({0, 1, 2}), Factors({3})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kDxIn[] = {LinearIn("TO"), LinearIn("eOI"), {"T"}, LinearIn("TI", "acc")};
constexpr FlowOutput kDxOut[] = {{"TI", {Factors({0, 1, 2}), Factors({3})}}};
constexpr FlowRule kDxFlow = {.in = kDxIn, .out = kDxOut};
constexpr FlowOperand kDwIn[] = {LinearIn("TO"), LinearIn("TI"), {"T"}, LinearIn("eOI", "acc")};
constexpr FlowOutput kDwOut[] = {{"eOI", {Factors({0, 1, 2}), Factors({3})}}};
constexpr FlowRule kDwFlow = {.in = kDwIn, .out = kDwOut};

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
