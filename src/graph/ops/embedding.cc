// Embedding: x[t] = table[index[t] + offset]. OPT's learned positions start at row 2, hence the offset
// (transformers, OPTLearnedPositionalEmbedding). With `whole`, the table is rows begin, begin+1, ... of one of that
// many, and x[t] is zero where its row is another of them. A table of int8 rows gives the numbers that it is computed
// with.
//
// Rows of a table may be trained apart from it: with `without`, a list of rows (row_list.h), x[t] is zero where its row
// is among them, and with `only` the table is those rows of a table of `whole`, in their order, and x[t] is zero for
// others. The sum of both looks rows up in the table in which they are replaced.
#include <algorithm>
#include <vector>

#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"
#include "graph/row_list.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

// Whether a table of `rows` rows is the part of the whole that the attributes say, and the offset within that.
bool GoodRows(int64_t rows, const Attributes& a) {
  const int64_t whole = a.IntOr("whole", rows), begin = a.IntOr("begin", 0);
  if (a.Has("only") || a.Has("without")) {
    if (a.Has("only") && (a.Has("without") || a.Has("begin") || a.Has("split") || !a.Has("whole"))) return false;
    const auto listed = ParseRowList(a.String(a.Has("only") ? "only" : "without"));
    if (!listed.ok() || *std::max_element(listed->begin(), listed->end()) >= whole) return false;
    if (a.Has("only") && std::ssize(*listed) != rows) return false;
  }
  if (a.Has("split") && (!a.Has("whole") || !AxisSet::Parse(a.String("split")).ok())) return false;
  return begin <= whole && rows <= whole - begin && (a.Has("whole") || begin == 0) && a.IntOr("offset", 0) <= whole;
}

bool GoodTable(const TensorType& table) {
  return IsMatrix(table) && (table.dtype.quantised() ? RuleOf(table.dtype).of_embeddings : IsFloat(table));
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !GoodTable(in[0]) || in[1].shape.rank() != 1 || !IsIndex(in[1], in[1].shape[0]) ||
      !GoodRows(in[0].shape[0], a)) {
    return BadOperands(Op::kEmbedding, "(table_VD, index_T i32)", in, a);
  }
  return Types{{in[0].dtype.compute(), {in[1].shape[0], in[0].shape[1]}}};
}

Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  const TensorType looked_up{in[0].dtype, out[0].shape};
  return {.read = looked_up.bytes() + in[1].bytes(), .written = out[0].bytes()};
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  std::vector<ValueId> inputs = {sink.OutputGradient(0), sink.node().inputs[1]};
  const ValueId acc = sink.Pending(0);
  if (acc != kNoValue) inputs.push_back(acc);
  Attributes attributes = sink.node().attributes;
  attributes.Set("acc", int64_t{acc != kNoValue});
  attributes.Set("vocab", sink.value(sink.node().inputs[0]).type.shape[0]);
  sink.Deliver(0, sink.Emit(Op::kEmbeddingBackward, inputs, std::move(attributes))[0]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const size_t want = a.Flag("acc") ? 3 : 2;
  if (in.size() != want || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsIndex(in[1], in[0].shape[0]) ||
      !GoodRows(a.Int("vocab"), a)) {
    return BadOperands(Op::kEmbeddingBackward, "(d_x_TD, index_T, [acc_VD])", in, a);
  }
  const TensorType d_table{GradientDType(in[0].dtype), {a.Int("vocab"), in[0].shape[1]}};
  if (a.Flag("acc") && !(in[2] == d_table)) return BadOperands(Op::kEmbeddingBackward, "acc like d_table", in, a);
  return Types{d_table};
}

Cost BackwardCost(const Types& in, const Types& out, const Attributes& a) {
  // With acc only the rows that occur are touched; without, the rest is zeroed.
  const Bytes touched{in[0].shape.elements() * SizeOf(out[0].dtype)};
  return {.flops = {static_cast<double>(in[0].shape.elements())},
          .read = in[0].bytes() + touched,
          .written = a.Flag("acc") ? touched : out[0].bytes()};
}

// The axes that deal rows of the batch to ranks and rows of the table, too, if there every rank is to look all tokens
// up in its part of the table instead of gathering it: where that moves less, which it does where a micro-batch has
// fewer tokens than the vocabulary has words. Outermost first.
std::vector<Axis> AxesOfRows(ShardingSink& sink, const Sharding& table, const Sharding& index) {
  // Looked-up rows can be dealt again over the innermost axes only, and parts of the table gathered from the inside.
  std::vector<Axis> axes;
  for (const Axis axis : index.dims[0]) {
    if (table.DimOf(axis) == 0) {
      axes.push_back(axis);
    } else if (!axes.empty()) {
      return {};
    }
  }
  if (axes.empty()) return {};
  AxisSet over;
  for (const Axis axis : axes) over |= axis;
  const Value& whole = sink.value(sink.node().inputs[0]);
  const Value& tokens = sink.value(sink.node().inputs[1]);
  const int64_t ranks = sink.mesh().size(over);
  // Of what the ranks of these axes have together.
  const auto part = [&](int64_t n, const Sharding& p) { return n * ranks / sink.mesh().size(p.split()); };
  const int64_t indices = part(tokens.type.shape[0], index);
  const DType computed = whole.type.dtype.compute();
  const Bytes rows{indices * whole.type.shape[1] * SizeOf(computed)};
  const Bytes kept{part(whole.type.bytes().v, table)};
  const int64_t elements = part(whole.type.shape.elements(), table);
  const Bytes gradient{whole.trainable ? elements * SizeOf(GradientDType(computed)) : 0};
  const auto sent = [&](Bytes bytes) { return bytes * (ranks - 1) / ranks; };
  const Alternatives ways = {
      .what = "embedding " + whole.name,
      .first = "table",
      .second = "rows",
      .axes = over,
      .sent_first = sent(kept + gradient),
      .sent_second = sent(Bytes{indices * SizeOf(tokens.type.dtype)} + rows * (whole.trainable ? 2 : 1))};
  return sink.TakesSecond(ways) ? axes : std::vector<Axis>();
}

// Where rows of the table are split along tensor axes, each rank looks up those it holds (attribute `begin`: the first
// of them) and gives zeros for the others: terms of a sum. Columns may be split: so is x then.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding index = sink.sharding(1);
  Sharding table = sink.sharding(0), x;
  const bool listed = node.attributes.Has("only");  // few rows, which every rank takes whole
  const std::vector<Axis> of_rows = table.dims[0];
  for (auto axis = of_rows.rbegin(); listed && axis != of_rows.rend(); ++axis) table = Gathered(table, 0, *axis);
  const std::vector<Axis> looked_up = listed ? std::vector<Axis>() : AxesOfRows(sink, table, index);
  for (const Axis axis : looked_up) index = Gathered(index, 0, axis);
  x.dims[0] = index.dims[0];
  for (const Axis axis : sink.mesh().axes().axes()) {
    const int dim = table.DimOf(axis);
    if (index.DimOf(axis) == 0) {
      if (dim >= 0) table = Gathered(table, dim, axis);
      table.varying |= axis;
    } else if (dim == 0) {
      x.partial |= axis;
    }
  }
  x.dims[1] = table.dims[1];
  Attributes attributes = node.attributes;
  if (!table.split(0).empty()) {
    const Shape& whole = sink.value(node.inputs[0]).type.shape;
    attributes.Set("begin", sink.box(whole, table).begin[0]);
    attributes.Set("whole", whole[0]);
    std::string axes;  // outermost first
    for (const Axis axis : table.dims[0]) axes += (axes.empty() ? "" : ",") + std::string(ToString(axis));
    attributes.Set("split", axes);
  }
  const ValueId part = sink.Use(0, table);
  ValueId rows = sink.Emit(Op::kEmbedding, {part, sink.Use(1, index)}, std::move(attributes), {x})[0];
  for (const Axis axis : looked_up) {
    x.partial = x.partial - axis;
    x.dims[0].push_back(axis);
  }
  sink.Deliver(0, looked_up.empty() ? rows : sink.Convert(rows, x));
}

constexpr AttributeSpec kAttributes[] = {OptionalSize("offset"),  OptionalSize("whole"),  OptionalSize("begin"),
                                         OptionalString("split"), OptionalString("only"), OptionalString("without")};
constexpr AttributeSpec kBackwardAttributes[] = {
    Flag("acc"),           OptionalSize("offset"),  Size("vocab"),          OptionalSize("whole"),
    OptionalSize("begin"), OptionalString("split"), OptionalString("only"), OptionalString("without")};

// A rank that holds some rows of the table gives zeros for the others: terms of a sum over ranks.
constexpr FlowOperand kForwardIn[] = {LinearIn("VD"), {"T"}};
constexpr FlowOutput kForwardOut[] = {{"TD", {Factors({0, 1})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut, .part = 'V', .part_axes = "split"};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TD"), {"T"}, LinearIn("VD", "acc")};
constexpr FlowOutput kBackwardOut[] = {{"VD", {Factors({0, 1}), Factors({2})}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut, .part = 'V', .part_axes = "split"};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAtExtents(dtype, {{"offset", int64_t{0}}}, [](const TensorType& x) {
    return Types{{x.dtype, {512, x.shape[1]}}, {DType::kI32, {x.shape[0]}}};
  });
}

}  // namespace

const OpRule kEmbeddingRule = {.kind = OpKind::kMemory,
                               .attributes = kAttributes,
                               .infer = Infer,
                               .gradient = Gradient,
                               .shard = ShardOperands,
                               .flow = &kForwardFlow,
                               .cost = ForwardCost,
                               .recompute = RecomputeCost::kCheap,
                               .measured = Measured};
const OpRule kEmbeddingBackwardRule = {.kind = OpKind::kMemory,
                                       .attributes = kBackwardAttributes,
                                       .infer = InferBackward,
                                       .flow = &kBackwardFlow,
                                       .cost = BackwardCost,
                                       .in_place_input = 2};

}  // namespace temper
