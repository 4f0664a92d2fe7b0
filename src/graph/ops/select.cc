// Select: one matrix of a weight that stacks several (experts of a mixture), for the ops that take matrices. Its
// backward puts the gradient of that matrix into the gradient of the stack.
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 1 || in[0].shape.rank() != 3 || !IsFloat(in[0]) || a.Int("index") >= in[0].shape[0]) {
    return BadOperands(Op::kSelect, "w_EOI with index < E", in, a);
  }
  return Types{{in[0].dtype, {in[0].shape[1], in[0].shape[2]}}};
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  const ValueId stack = sink.node().inputs[0], acc = sink.Pending(0);
  std::vector<ValueId> inputs = {sink.OutputGradient(0)};
  if (acc != kNoValue) inputs.push_back(acc);
  sink.Deliver(0, sink.Emit(Op::kSelectBackward, std::move(inputs),
                            {{"acc", int64_t{acc != kNoValue}},
                             {"index", sink.node().attributes.Int("index")},
                             {"matrices", sink.value(stack).type.shape[0]}})[0]);
}

// Made as the product would make a weight: over axes that give ranks tokens of their own the whole stack is gathered
// once, for all its matrices. Over tensor axes each matrix stays split, but ranks that hold only some gather those.
void ShardStack(ShardingSink& sink) {
  Sharding stack = sink.sharding(0);
  for (const Axis axis : (sink.mesh().axes() - Axis::kPp).axes()) {
    const int dim = stack.DimOf(axis);
    if (kTensorAxes.Has(axis) && dim != 0) continue;
    if (dim >= 0) stack = Gathered(stack, dim, axis);
    stack.varying |= axis;
  }
  Sharding matrix{.partial = stack.partial, .varying = stack.varying};
  for (const size_t dim : {0, 1}) matrix.dims[dim] = stack.dims[dim + 1];
  sink.Deliver(0, sink.Emit(Op::kSelect, {sink.Use(0, stack)}, sink.node().attributes, {matrix})[0]);
}

Cost ForwardCost(const Types&, const Types& out, const Attributes&) {
  return {.read = out[0].bytes(), .written = out[0].bytes()};
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const size_t want = a.Flag("acc") ? 2 : 1;
  if (in.size() != want || !IsMatrix(in[0]) || !IsFloat(in[0]) || in[0].dtype != GradientDType(in[0].dtype) ||
      a.Int("index") >= a.Int("matrices")) {
    return BadOperands(Op::kSelectBackward, "(d_OI f32, [acc_EOI]) with index < matrices", in, a);
  }
  const TensorType d_w{in[0].dtype, {a.Int("matrices"), in[0].shape[0], in[0].shape[1]}};
  if (a.Flag("acc") && !(in[1] == d_w)) return BadOperands(Op::kSelectBackward, "acc like d_w", in, a);
  return Types{d_w};
}

// With acc the other matrices stay; without, they are zeroed.
Cost BackwardCost(const Types& in, const Types& out, const Attributes& a) {
  const Bytes one = in[0].bytes();
  if (!a.Flag("acc")) return {.read = one, .written = out[0].bytes()};
  return {.flops = {static_cast<double>(in[0].shape.elements())}, .read = one * 2, .written = one};
}

constexpr AttributeSpec kAttributes[] = {Size("index")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("acc"), Size("index"), Size("matrices")};

constexpr FlowOperand kForwardIn[] = {LinearIn("eOI")};
constexpr FlowOutput kForwardOut[] = {{"OI", {Factors({0})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kBackwardIn[] = {LinearIn("OI"), LinearIn("eOI", "acc")};
constexpr FlowOutput kBackwardOut[] = {{"eOI", {Factors({0}), Factors({1})}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

}  // namespace

const OpRule kSelectRule = {.kind = OpKind::kMemory,
                            .attributes = kAttributes,
                            .infer = Infer,
                            .gradient = Gradient,
                            .shard = ShardStack,
                            .flow = &kForwardFlow,
                            .cost = ForwardCost,
                            .recompute = RecomputeCost::kCheap};
const OpRule kSelectBackwardRule = {.kind = OpKind::kMemory,
                                    .attributes = kBackwardAttributes,
                                    .infer = InferBackward,
                                    .flow = &kBackwardFlow,
                                    .cost = BackwardCost,
                                    .in_place_input = 1};

}  // namespace temper
