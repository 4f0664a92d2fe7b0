// Linear: y = scale * (x w^T + x2 w2^T) + bias + acc, with w stored [out, in] as in the files. The accumulator is a
// residual (o_proj, down_proj) or the base product that a LoRA branch adds to. The second pair is such a branch that is
// part of its base product: compile/step/join_adapters.h makes it at the end, so only kernels and costs know it.
#include <fmt/core.h>

#include "base/check.h"
#include "graph/ops/linear_operands.h"
#include "graph/ops/matrix_product.h"
#include "graph/ops/measured.h"
#include "graph/ops/quantised_weight.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// x2_TR and w2 of the second pair: [O, R] of linear, [R, O] of its dx, where O are the columns of the product.
bool PairFits(const Types& in, const Attributes& a, int64_t columns, bool dx) {
  if (!a.Flag("pair2")) return true;
  const TensorType &x2 = in[2], &w2 = in[3];
  return IsMatrix(x2) && IsMatrix(w2) && x2.dtype == in[0].dtype && w2.dtype == in[0].dtype &&
         x2.shape[0] == in[0].shape[0] && w2.shape[dx ? 0 : 1] == x2.shape[1] && w2.shape[dx ? 1 : 0] == columns;
}
// The second pair is told from [bias], acc by its types alone where no attributes are at hand.
bool HasPair(const Types& in) {
  return in.size() >= 4 && in[2].shape.rank() == 2;
}
int64_t InnerOfPair(const Types& in) {
  return HasPair(in) ? in[2].shape[1] : 0;
}

Flops GemmFlops(int64_t t, int64_t i, int64_t o) {
  return {2.0 * static_cast<double>(t) * static_cast<double>(i) * static_cast<double>(o)};
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const LinearOperands places(a);
  if (in.size() != static_cast<size_t>(places.num_inputs) || !IsMatrix(in[0]) || !IsWeightFor(in[0], in[1]) ||
      in[0].shape[1] != in[1].shape[1] || !IsFloat(in[0]) || !DequantiseFits(in[1], a) ||
      !PairFits(in, a, in[1].shape[0], false)) {
    return BadOperands(Op::kLinear, "(x_TI, w_OI, [x2_TR, w2_OR], [bias_O], [acc_TO])", in, a);
  }
  TensorType y{in[0].dtype, {in[0].shape[0], in[1].shape[0]}};
  if (a.Has("out")) {
    TEMPER_ASSIGN_OR_RETURN(y.dtype, ParseDType(a.String("out")));
    if (!IsFloat(y)) return BadOperands(Op::kLinear, "a floating 'out'", in, a);
  }
  if (places.bias >= 0 && !IsFloatVector(in[static_cast<size_t>(places.bias)], y.shape[1]))
    return BadOperands(Op::kLinear, "bias_O", in, a);
  if (a.Flag("acc") && !(in.back() == y)) return BadOperands(Op::kLinear, "acc_TO like y", in, a);
  return Types{y};
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  TEMPER_CHECK(!node.attributes.Flag("pair2")) << "adapters are joined with their products after differentiation";
  const ValueId d_y = sink.OutputGradient(0);
  const ValueId x = node.inputs[0], w = node.inputs[1];
  const double scale = node.attributes.DoubleOr("scale", 1.0);
  const auto emit = [&](Op op, std::vector<ValueId> inputs, int target) {
    const ValueId acc = sink.Pending(target);
    if (acc != kNoValue) inputs.push_back(acc);
    Attributes attributes = {{"acc", int64_t{acc != kNoValue}}};
    if (op != Op::kSumRows && scale != 1.0) attributes.Set("scale", scale);
    if (op == Op::kLinearDx && DequantisesFirst(node.attributes)) attributes.Set("dequantise", int64_t{1});
    sink.Deliver(target, sink.Emit(op, inputs, attributes)[0]);
  };
  int next = 2;
  if (node.attributes.Flag("bias")) {
    if (sink.Needs(next)) emit(Op::kSumRows, {d_y}, next);
    ++next;
  }
  if (sink.Needs(1)) emit(Op::kLinearDw, {d_y, x}, 1);
  if (sink.Needs(0)) emit(Op::kLinearDx, {d_y, w}, 0);
  if (node.attributes.Flag("acc") && sink.Needs(next)) sink.Contribute(next, d_y);
}

// Along each axis, one of: rows of x are split (then w is gathered, along tensor axes only where that is decided); the
// output dim of w is split (then x is made to vary); the input dim of both is split (then y is a term of a sum);
// neither is.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding x = sink.sharding(0), w = sink.sharding(1), y;
  // Tokens that tensor ranks share are gathered among all of them, also those that hold copies of KV heads.
  const bool whole_weight = sink.TakesWholeWeight();
  if (!whole_weight && !(w.split(0) & kTensorAxes).empty()) {
    for (const Axis axis : (x.split(0) & kTensorAxes).axes()) x = Gathered(x, 0, axis);
  }
  for (const Axis axis : sink.mesh().axes().axes()) {
    int of_x = x.DimOf(axis);
    int of_w = w.DimOf(axis);
    if (of_x == 0 && of_w >= 0 && (whole_weight || !kTensorAxes.Has(axis))) {
      w = Gathered(w, of_w, axis);
      of_w = -1;
    } else if (of_x >= 0 && of_w >= 0 && !(of_x == 1 && of_w == 1)) {
      x = Gathered(x, of_x, axis);
      of_x = -1;
    } else if (of_x == 1 && of_w < 0) {
      x = Gathered(x, of_x, axis);
      of_x = -1;
    }
    if (of_x < 0 && of_w == 1) {
      return sink.Refuse(fmt::format("{} is split along its input dim over {}, but its other operand is not",
                                     sink.value(node.inputs[1]).name, ToString(axis)));
    }
    if (of_w == 0) {
      if (x.partial.Has(axis)) x = sink.Settled(x);
      for (const int dim : {0, 1}) {
        if (x.split(dim).Has(axis)) x = Gathered(x, dim, axis);
      }
      x.varying |= axis;
    } else if (of_w == 1) {
      y.partial |= axis;
    } else {
      const bool whole = of_x < 0 && !x.varying.Has(axis) && !x.partial.Has(axis);
      if (!whole) w.varying |= axis;
      if (x.partial.Has(axis)) y.partial |= axis;
      if (x.varying.Has(axis)) y.varying |= axis;
    }
  }
  if (x.dims[1] != w.dims[1]) {
    return sink.Refuse(fmt::format("the columns of {} and of its other operand are split over {} in different orders",
                                   sink.value(node.inputs[1]).name, w.split(1).ToString()));
  }
  y.dims[0] = x.dims[0];
  y.dims[1] = w.dims[0];
  const bool has_bias = node.attributes.Flag("bias"), has_acc = node.attributes.Flag("acc");
  // A bias is added once, so not to terms of a sum; neither is what lies otherwise than the terms do.
  const bool bias_later = has_bias && !y.partial.empty();
  const bool acc_later =
      has_acc && (bias_later || !(sink.sharding(static_cast<int>(node.inputs.size()) - 1) == y)) && !y.partial.empty();
  std::vector<ValueId> inputs = {sink.Use(0, x), sink.Use(1, w)};
  Attributes attributes = node.attributes;
  if (has_bias && !bias_later) inputs.push_back(sink.Use(2, VectorBeside(y, 1, sink.mesh())));
  if (has_acc && !acc_later) inputs.push_back(sink.Use(2 + has_bias, y));
  attributes.Set("bias", int64_t{has_bias && !bias_later});
  attributes.Set("acc", int64_t{has_acc && !acc_later});
  ValueId product = sink.Emit(Op::kLinear, std::move(inputs), std::move(attributes), {y})[0];
  if (bias_later || acc_later) {
    const Sharding settled = sink.Settled(y);
    product = sink.Convert(product, settled);
    if (bias_later) {
      const ValueId bias = sink.Use(2, VectorBeside(settled, 1, sink.mesh()));
      product = sink.Emit(Op::kAdd, {product, bias}, {}, {settled})[0];
    }
    if (acc_later) product = sink.Emit(Op::kAdd, {product, sink.Use(2 + has_bias, settled)}, {}, {settled})[0];
  }
  sink.Deliver(0, product);
}

Result<Types> InferDx(const Types& in, const Attributes& a) {
  if (in.size() != static_cast<size_t>(LinearOperands(a).num_inputs) || !IsMatrix(in[0]) ||
      !IsWeightFor(in[0], in[1]) || in[0].shape[1] != in[1].shape[0] || !IsFloat(in[0]) || !DequantiseFits(in[1], a) ||
      !PairFits(in, a, in[1].shape[1], true)) {
    return BadOperands(Op::kLinearDx, "(d_y_TO, w_OI, [x2_TR, w2_RI], [acc_TI])", in, a);
  }
  const TensorType d_x{in[0].dtype, {in[0].shape[0], in[1].shape[1]}};
  if (a.Flag("acc") && !(in.back() == d_x)) return BadOperands(Op::kLinearDx, "acc_TI like d_x", in, a);
  return Types{d_x};
}

Result<Types> InferDw(const Types& in, const Attributes& a) {
  if (in.size() != 2u + a.Flag("acc") || !IsMatrix(in[0]) || !IsMatrix(in[1]) || in[0].shape[0] != in[1].shape[0] ||
      !IsFloat(in[0]) || in[0].dtype != in[1].dtype) {
    return BadOperands(Op::kLinearDw, "(d_y_TO, x_TI, [acc_OI])", in, a);
  }
  const TensorType d_w{GradientDType(in[0].dtype), {in[0].shape[1], in[1].shape[1]}};
  if (a.Flag("acc") && !(in[2] == d_w)) return BadOperands(Op::kLinearDw, "acc_OI like d_w", in, a);
  return Types{d_w};
}

Result<Types> InferSumRows(const Types& in, const Attributes& a) {
  if (in.size() != 1u + a.Flag("acc") || !IsMatrix(in[0]) || !IsFloat(in[0])) {
    return BadOperands(Op::kSumRows, "(d_y_TO, [acc_O])", in, a);
  }
  const TensorType sum{GradientDType(in[0].dtype), {in[0].shape[1]}};
  if (a.Flag("acc") && !(in[1] == sum)) return BadOperands(Op::kSumRows, "acc_O like the sum", in, a);
  return Types{sum};
}

Cost SumRowsCost(const Types& in, const Types& out, const Attributes&) {
  return {.flops = {static_cast<double>(in[0].shape.elements())}, .read = in[0].bytes(), .written = out[0].bytes()};
}

// x_TI by w_OI; d_y_TO by w_OI; d_y_TO by x_TI (summed over T).
Cost ProductCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  AddDequantising(in, a, &cost);
  return cost;
}
Cost LinearCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ProductCost(in, out, a);
  cost.flops = GemmFlops(in[0].shape[0], in[0].shape[1] + InnerOfPair(in), in[1].shape[0]);
  return cost;
}
Cost DxCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ProductCost(in, out, a);
  cost.flops = GemmFlops(in[0].shape[0], in[0].shape[1] + InnerOfPair(in), in[1].shape[1]);
  return cost;
}
Cost DwCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ProductCost(in, out, a);
  cost.flops = GemmFlops(in[0].shape[0], in[0].shape[1], in[1].shape[1]);
  return cost;
}

Bytes LinearWorkspace(const Types& in, const Types& out, const Attributes& a, int threads) {
  const Bytes product = MatrixProductScratch(out[0].shape[0], out[0].shape[1], in[0].shape[1], out[0].dtype, true,
                                             threads, in[1].packed(), InnerOfPair(in));
  return DequantisesFirst(a) ? std::max(product, in[1].computed().bytes()) : product;
}
Bytes DwWorkspace(const Types& in, const Types& out, const Attributes&, int threads) {
  return MatrixProductScratch(out[0].shape[0], out[0].shape[1], in[0].shape[0], out[0].dtype, false, threads,
                              in[1].packed());
}

// What is added to, which comes last, becomes the sum: each of its elements is read just before it is written.
int LinearOverwrites(const Attributes& a, int num_inputs, int output) {
  return output == 0 && a.Flag("acc") ? num_inputs - 1 : -1;
}

constexpr AttributeSpec kAttributes[] = {Flag("bias"),          Flag("acc"),        OptionalDouble("scale"),
                                         OptionalString("out"), Flag("dequantise"), Flag("pair2")};
constexpr AttributeSpec kDxAttributes[] = {Flag("acc"), OptionalDouble("scale"), Flag("dequantise"), Flag("pair2")};
constexpr AttributeSpec kDwAttributes[] = {Flag("acc"), OptionalDouble("scale")};
constexpr AttributeSpec kSumRowsAttributes[] = {Flag("acc")};

constexpr FlowOperand kLinearIn[] = {LinearIn("TI"),          LinearIn("OI"),        LinearIn("TR", "pair2"),
                                     LinearIn("OR", "pair2"), LinearIn("O", "bias"), LinearIn("TO", "acc")};
// Bias and accumulator are what the product is: whole, split or terms alike.
constexpr FlowOutput kLinearOut[] = {{"TO", {Factors({0, 1}), Factors({2, 3}), Factors({4}), Factors({5})}}};
constexpr FlowRule kLinearFlow = {.in = kLinearIn, .out = kLinearOut};
constexpr FlowOperand kDxIn[] = {LinearIn("TO"), LinearIn("OI"), LinearIn("TR", "pair2"), LinearIn("RI", "pair2"),
                                 LinearIn("TI", "acc")};
constexpr FlowOutput kDxOut[] = {{"TI", {Factors({0, 1}), Factors({2, 3}), Factors({4})}}};
constexpr FlowRule kDxFlow = {.in = kDxIn, .out = kDxOut};
constexpr FlowOperand kDwIn[] = {LinearIn("TO"), LinearIn("TI"), LinearIn("OI", "acc")};
constexpr FlowOutput kDwOut[] = {{"OI", {Factors({0, 1}), Factors({2})}}};
constexpr FlowRule kDwFlow = {.in = kDwIn, .out = kDwOut};
constexpr FlowOperand kSumRowsIn[] = {LinearIn("TO"), LinearIn("O", "acc")};
constexpr FlowOutput kSumRowsOut[] = {{"O", {Factors({0}), Factors({1})}}};
constexpr FlowRule kSumRowsFlow = {.in = kSumRowsIn, .out = kSumRowsOut};

ProductDims DimsOf(const Types& in) {
  return {.rows = in[0].shape[0], .columns = in[1].shape[0], .inner = in[0].shape[1] + InnerOfPair(in)};
}
ProductDims DxDimsOf(const Types& in) {
  return {.rows = in[0].shape[0], .columns = in[1].shape[1], .inner = in[0].shape[1] + InnerOfPair(in)};
}
ProductDims DwDimsOf(const Types& in) {
  return {.rows = in[0].shape[1], .columns = in[1].shape[1], .inner = in[0].shape[0]};
}

void AddModelWork(const Types& in, const Attributes&, ModelWork* work) {
  work->weights += in[1].shape.elements() + (HasPair(in) ? in[3].shape.elements() : 0);
}

// Products of small and large models, with rows too few, enough and many; then LoRA's A ([r, in]) and B ([out, r]).
struct MeasuredDims {
  int64_t T, I, O;
};
constexpr MeasuredDims kMeasuredDims[] = {{128, 512, 2048},  {256, 512, 512},   {512, 1024, 1024}, {2048, 512, 512},
                                          {1024, 768, 3072}, {2048, 2048, 768}, {256, 512, 8},     {1024, 1024, 16},
                                          {2048, 2048, 8},   {256, 8, 512},     {1024, 16, 1024},  {2048, 8, 2048}};

// As a residual or a LoRA branch is added.
std::vector<MeasuredCase> Measured(DType dtype) {
  std::vector<MeasuredCase> cases;
  for (const auto& [T, I, O] : kMeasuredDims) {
    cases.push_back({.inputs = {{dtype, {T, I}}, {dtype, {O, I}}, {dtype, {T, O}}},
                     .attributes = {{"acc", int64_t{1}}, {"bias", int64_t{0}}}});
  }
  return cases;
}
std::vector<MeasuredCase> MeasuredDx(DType dtype) {
  std::vector<MeasuredCase> cases;
  for (const auto& [T, I, O] : kMeasuredDims) {
    cases.push_back(
        {.inputs = {{dtype, {T, O}}, {dtype, {O, I}}, {dtype, {T, I}}}, .attributes = {{"acc", int64_t{1}}}});
  }
  return cases;
}
std::vector<MeasuredCase> MeasuredDw(DType dtype) {
  std::vector<MeasuredCase> cases;
  for (const auto& [T, I, O] : kMeasuredDims) {
    cases.push_back(
        {.inputs = {{dtype, {T, O}}, {dtype, {T, I}}, {DType::kF32, {O, I}}}, .attributes = {{"acc", int64_t{1}}}});
  }
  return cases;
}
std::vector<MeasuredCase> MeasuredSumRows(DType dtype) {
  return MeasuredAlike(dtype, 1, {{"acc", int64_t{0}}});
}

}  // namespace

const OpRule kLinearRule = {.kind = OpKind::kProduct,
                            .attributes = kAttributes,
                            .infer = Infer,
                            .gradient = Gradient,
                            .shard = ShardOperands,
                            .flow = &kLinearFlow,
                            .cost = LinearCost,
                            .workspace = LinearWorkspace,
                            .overwrites = LinearOverwrites,
                            .product = DimsOf,
                            .packed = {.input = 1, .layout = ElementLayout::kColumnPairs},
                            .recompute = RecomputeCost::kExpensive,
                            .model_work = AddModelWork,
                            .moved_before = DequantisedBytes,
                            .measured = Measured};
const OpRule kLinearDxRule = {.kind = OpKind::kProduct,
                              .attributes = kDxAttributes,
                              .infer = InferDx,
                              .flow = &kDxFlow,
                              .cost = DxCost,
                              .workspace = LinearWorkspace,
                              .overwrites = LinearOverwrites,
                              .product = DxDimsOf,
                              .packed = {.input = 1, .layout = ElementLayout::kRowPairs},
                              .moved_before = DequantisedBytes,
                              .measured = MeasuredDx};
const OpRule kLinearDwRule = {.kind = OpKind::kProduct,
                              .attributes = kDwAttributes,
                              .infer = InferDw,
                              .flow = &kDwFlow,
                              .cost = DwCost,
                              .workspace = DwWorkspace,
                              .in_place_input = 2,
                              .product = DwDimsOf,
                              .packed = {.input = 1, .layout = ElementLayout::kRowPairs},
                              .measured = MeasuredDw};
const OpRule kSumRowsRule = {.kind = OpKind::kMemory,
                             .attributes = kSumRowsAttributes,
                             .infer = InferSumRows,
                             .flow = &kSumRowsFlow,
                             .cost = SumRowsCost,
                             .in_place_input = 1,
                             .measured = MeasuredSumRows};

}  // namespace temper
