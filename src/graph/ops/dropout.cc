// Dropout: y = x * mask / (1-p), mask_i = [u_i >= p] with u drawn by counter from (seed, the value's name, step, place
// in the batch), so that recomputing it gives the same mask and its backward is the same op applied to the gradient.
// Element (t, c) of x_TC is element (kRngFirstToken + row + t) * columns + column + c of the batch: x may be a part of
// a whole that is `columns` wide. Where rows are dealt over cp (tensor/context_part.h), kRngFirstToken is the place of
// the first of the whole rows that this rank has tokens of, and row + t counts its own tokens.
#include "graph/ops/context_attributes.h"
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// Whether x is as wide as the whole, or lies within it.
bool GoodColumns(const TensorType& x, const Attributes& a) {
  if (!a.Has("columns")) return a.IntOr("column", 0) == 0;
  const int64_t columns = a.Int("columns"), column = a.IntOr("column", 0);
  return column <= columns && x.shape.columns() <= columns - column;
}

bool GoodRows(const TensorType& x, const Attributes& a) {
  if (!a.Has("packed_row")) return !a.Has("ranks") && !a.Has("index");
  const int64_t row = a.IntOr("row", 0);
  return row <= int64_t{1} << 39 && GoodContext(a, "packed_row", row + x.shape.rows());
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !IsFloat(in[0]) || in[1].dtype != DType::kI64 || !IsVector(in[1], kNumRngWords) ||
      !(a.Double("p") >= 0 && a.Double("p") < 1) || !GoodColumns(in[0], a) || !GoodRows(in[0], a)) {
    return BadOperands(Op::kDropout, "(x, rng i64[3]), 0 <= p < 1, columns of x within `columns`, rows in chunks", in,
                       a);
  }
  return Types{in[0]};
}
// Philox costs about 60 integer operations per four elements.
Cost DropoutCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 16);
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  // The emitted node inherits the forward node's rng_name, hence its mask.
  sink.Contribute(0,
                  sink.Emit(Op::kDropout, {sink.OutputGradient(0), sink.node().inputs[1]}, sink.node().attributes)[0]);
}

// A rank draws for its part of x what one rank would have drawn there: `row` and `column` say where the part begins,
// `columns` how wide the whole is. Rows are counted from the first that this rank's batch holds (kRngFirstToken).
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  const Sharding p = sink.sharding(0);
  const Shape& global = sink.value(node.inputs[0]).type.shape;
  Sharding batch;  // as the host deals rows
  for (const Axis axis : p.dims[0]) {
    if (!kTensorAxes.Has(axis)) batch.dims[0].push_back(axis);
  }
  const Box part = sink.box(global, p), rows = sink.box(global, batch);
  Attributes attributes = node.attributes;
  attributes.Set("row", part.begin[0] - rows.begin[0]);
  attributes.Set("column", part.begin[1]);
  attributes.Set("columns", global[1]);
  if (p.split(0).Has(Axis::kCp)) {
    const ContextPart dealt = sink.context();
    attributes.Set("packed_row", dealt.row);
    attributes.Set("ranks", dealt.ranks);
    attributes.Set("index", dealt.index);
  }
  const ValueId x = sink.Use(0, p);
  sink.Deliver(0, sink.Emit(Op::kDropout, {x, sink.Use(1, sink.sharding(1))}, std::move(attributes), {p})[0]);
}

constexpr AttributeSpec kAttributes[] = {Double("p"),
                                         OptionalSize("row"),
                                         OptionalSize("column"),
                                         OptionalSize("columns"),
                                         OptionalSize("packed_row"),
                                         OptionalSize("ranks"),
                                         OptionalSize("index")};

// The same draws everywhere: they are keyed by an element's place in the whole.
constexpr FlowOperand kDropoutIn[] = {LinearIn("TD"), {""}};
constexpr FlowOutput kDropoutOut[] = {{"TD", {Factors({0})}}};
constexpr FlowRule kDropoutFlow = {.in = kDropoutIn, .out = kDropoutOut};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAtExtents(dtype, {{"p", 0.1}}, [](const TensorType& x) {
    return Types{x, {DType::kI64, {kNumRngWords}}};
  });
}

}  // namespace

const OpRule kDropoutRule = {.kind = OpKind::kElementwise,
                             .attributes = kAttributes,
                             .infer = Infer,
                             .gradient = Gradient,
                             .shard = ShardOperands,
                             .flow = &kDropoutFlow,
                             .cost = DropoutCost,
                             .in_place_input = 0,
                             .recompute = RecomputeCost::kCheap,
                             .random = true,
                             .measured = Measured};

}  // namespace temper
