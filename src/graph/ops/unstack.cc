// Unstack: the matrices that one matrix holds, as a stack [E, out, in], for grouped_linear. PEFT keeps the adapters of
// E experts so: A [E*R, in] holds their rows one expert after the other, B [out, R*E] their columns in turn (column r*E
// + e; peft, ParamWrapper). Costs a copy of the adapter's matrix, which is small beside the experts'.
//
// A rank of the mesh axis ep makes the stack of its own experts, `count` from `begin` on, of a matrix that is whole;
// `split` names the axis. In the gradient the others' elements are zeros, or what there was (`whole` experts in all).
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

bool GoodPart(int64_t begin, int64_t count, int64_t whole, const Attributes& a) {
  return count > 0 && count <= whole && begin <= whole - count &&
         (!a.Has("split") || AxisSet::Parse(a.String("split")).ok());
}

// [E, out, in] of a matrix of that shape, or rank 0 where it does not hold `matrices`.
Shape StackOf(const Shape& w, const Attributes& a) {
  const int64_t E = a.Int("matrices"), M = w[0], N = w[1], count = a.IntOr("count", E);
  const bool interleaved = a.Flag("interleaved");
  if (E <= 0 || (interleaved ? N : M) % E != 0 || !GoodPart(a.IntOr("begin", 0), count, E, a)) return {};
  return interleaved ? Shape{count, M, N / E} : Shape{count, M / E, N};
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const Shape stack = in.size() == 1 && IsMatrix(in[0]) ? StackOf(in[0].shape, a) : Shape();
  if (stack.rank() == 0 || !IsFloat(in[0])) {
    return BadOperands(Op::kUnstack, "w_(EO)I, or with `interleaved` w_O(IE), E matrices", in, a);
  }
  return Types{{in[0].dtype, stack}};
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  const ValueId acc = sink.Pending(0);
  std::vector<ValueId> inputs = {sink.OutputGradient(0)};
  if (acc != kNoValue) inputs.push_back(acc);
  Attributes attributes = {{"acc", int64_t{acc != kNoValue}}};
  const Attributes& own = sink.node().attributes;
  if (own.Flag("interleaved")) attributes.Set("interleaved", int64_t{1});
  if (own.Has("split")) {
    attributes.Set("begin", own.Int("begin"));
    attributes.Set("whole", own.Int("matrices"));
    attributes.Set("split", own.String("split"));
  }
  sink.Deliver(0, sink.Emit(Op::kUnstackBackward, std::move(inputs), std::move(attributes))[0]);
}

// Made as the product would make a weight: over axes that give ranks tokens of their own the matrix is gathered. Over
// tensor axes it stays split, but for the dim that experts share.
void ShardMatrix(ShardingSink& sink) {
  const Node& node = sink.node();
  const bool interleaved = node.attributes.Flag("interleaved");
  const int shared = interleaved ? 1 : 0;
  Sharding w = sink.sharding(0);
  for (const Axis axis : (sink.mesh().axes() - Axis::kPp).axes()) {
    const int dim = w.DimOf(axis);
    if (kTensorAxes.Has(axis) && dim >= 0 && dim != shared) continue;
    if (dim >= 0) w = Gathered(w, dim, axis);
    w.varying |= axis;
  }
  Sharding stack{.partial = w.partial, .varying = w.varying};
  (interleaved ? stack.dims[1] : stack.dims[2]) = w.dims[static_cast<size_t>(1 - shared)];
  Attributes attributes = node.attributes;
  if (sink.mesh().size(Axis::kEp) > 1) {
    stack.dims[0] = {Axis::kEp};
    stack.varying = stack.varying - Axis::kEp;
    const Box part = sink.box(sink.value(node.outputs[0]).type.shape, stack);
    attributes.Set("begin", part.begin[0]);
    attributes.Set("count", part.shape[0]);
    attributes.Set("split", AxisSet(Axis::kEp).ToString());
  }
  sink.Deliver(0, sink.Emit(Op::kUnstack, {sink.Use(0, w)}, std::move(attributes), {stack})[0]);
}

Cost CostOf(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 0);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() != 1u + a.Flag("acc") || in[0].shape.rank() != 3 || !IsFloat(in[0]) ||
      in[0].dtype != GradientDType(in[0].dtype)) {
    return BadOperands(Op::kUnstackBackward, "(d_EOI f32, [acc])", in, a);
  }
  const int64_t E = a.IntOr("whole", in[0].shape[0]), O = in[0].shape[1], I = in[0].shape[2];
  if (!GoodPart(a.IntOr("begin", 0), in[0].shape[0], E, a)) {
    return BadOperands(Op::kUnstackBackward, "(d_EOI f32, [acc]) of some of the whole's experts", in, a);
  }
  const TensorType d_w{in[0].dtype, a.Flag("interleaved") ? Shape{O, I * E} : Shape{E * O, I}};
  if (a.Flag("acc") && !(in[1] == d_w)) return BadOperands(Op::kUnstackBackward, "acc like d_w", in, a);
  return Types{d_w};
}

constexpr AttributeSpec kAttributes[] = {Size("matrices"), Flag("interleaved"), OptionalSize("begin"),
                                         OptionalSize("count"), OptionalString("split")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("acc"), Flag("interleaved"), OptionalSize("begin"),
                                                 OptionalSize("whole"), OptionalString("split")};

// Matrices one after the other; interleaved ones.
constexpr FlowOperand kRowsIn[] = {LinearIn("rI")};
constexpr FlowOutput kRowsOut[] = {{"ErI", {Factors({0})}}};
constexpr FlowOperand kColumnsIn[] = {LinearIn("Or")};
constexpr FlowOutput kColumnsOut[] = {{"EOr", {Factors({0})}}};
constexpr FlowRule kColumnsFlow = {.in = kColumnsIn, .out = kColumnsOut, .part = 'E', .part_axes = "split"};
constexpr FlowRule kRowsFlow = {
    .in = kRowsIn, .out = kRowsOut, .part = 'E', .part_axes = "split", .flag = "interleaved", .flagged = &kColumnsFlow};
constexpr FlowOperand kRowsBackwardIn[] = {LinearIn("ErI"), LinearIn("rI", "acc")};
constexpr FlowOutput kRowsBackwardOut[] = {{"rI", {Factors({0}), Factors({1})}}};
constexpr FlowOperand kColumnsBackwardIn[] = {LinearIn("EOr"), LinearIn("Or", "acc")};
constexpr FlowOutput kColumnsBackwardOut[] = {{"Or", {Factors({0}), Factors({1})}}};
constexpr FlowRule kColumnsBackwardFlow = {
    .in = kColumnsBackwardIn, .out = kColumnsBackwardOut, .part = 'E', .part_axes = "split"};
constexpr FlowRule kRowsBackwardFlow = {.in = kRowsBackwardIn,
                                        .out = kRowsBackwardOut,
                                        .part = 'E',
                                        .part_axes = "split",
                                        .flag = "interleaved",
                                        .flagged = &kColumnsBackwardFlow};

}  // namespace

const OpRule kUnstackRule = {.kind = OpKind::kMemory,
                             .attributes = kAttributes,
                             .infer = Infer,
                             .gradient = Gradient,
                             .shard = ShardMatrix,
                             .flow = &kRowsFlow,
                             .cost = CostOf,
                             .recompute = RecomputeCost::kCheap};
const OpRule kUnstackBackwardRule = {.kind = OpKind::kMemory,
                                     .attributes = kBackwardAttributes,
                                     .infer = InferBackward,
                                     .flow = &kRowsBackwardFlow,
                                     .cost = CostOf,
                                     .in_place_input = 1};

}  // namespace temper
