// The gated delta rule (Yang et al. 2024, Gated Delta Networks; transformers, torch_chunk_gated_delta_rule): a state of
// key_dim x value_dim per value head, zero at a document's start, which a token decays, corrects and reads:
//
//   S <- exp(g_t) S;  S <- S + k_t (beta_t (v_t - S^T k_t))^T;  o_t = S^T q_t
//
// q and k are divided by their norms, q also by sqrt(key_dim); beta = sigmoid(b); states are in f32. Kernels compute
// chunks of 64 tokens by products of matrices, with one triangular system each. The forward pass keeps nothing: the
// backward makes the states at chunks' begins again, in scratch.
#include "graph/ops/gated_delta.h"

#include <fmt/core.h>

#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// (q, k, v, g, b, document_start), from operand `first` on.
bool AreOperands(const Types& in, size_t first, const Attributes& a) {
  const TensorType& q = in[first];
  const DeltaDims d = DeltaDimsOf(q, in[first + 1], in[first + 2], a);
  return d.key_heads > 0 && IsFloat(q) &&
         in[first + 3] == TensorType{StatisticDType(q.dtype), {d.tokens, d.value_heads}} &&
         in[first + 4] == TensorType{q.dtype, {d.tokens, d.value_heads}} && IsIndex(in[first + 5], d.tokens) &&
         d.row > 0 && d.tokens % d.row == 0;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 6 || !AreOperands(in, 0, a)) {
    return BadOperands(Op::kGatedDelta,
                       "(q_T(K*D), k_T(K*D), v_T(H*F), g_TH f32, b_TH, document_start_T), H a multiple of K", in, a);
  }
  return Types{in[2]};
}

// Of a token of a value head: three products with the state, and a row each of two triangles of a chunk. Of a key head:
// a row each of two squares.
double FlopsOf(const DeltaDims& d) {
  const auto D = static_cast<double>(d.key_dim), F = static_cast<double>(d.value_dim), C = double{kStateChunk};
  return static_cast<double>(d.tokens) *
         (static_cast<double>(d.value_heads) * (6 * D * F + 2 * C * F) + static_cast<double>(d.key_heads) * 4 * C * D);
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {FlopsOf(DeltaDimsOf(in[0], in[1], in[2], a))};
  return cost;
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  bool needed = false;
  for (int i = 0; i < 5; ++i) needed = needed || sink.Needs(i);
  if (!needed) return;
  std::vector<ValueId> inputs = {sink.OutputGradient(0)};
  inputs.insert(inputs.end(), node.inputs.begin(), node.inputs.end());
  const auto outputs = sink.Emit(Op::kGatedDeltaBackward, std::move(inputs), node.attributes);
  for (int i = 0; i < 5; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, outputs[static_cast<size_t>(i)]);
  }
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() != 7 || !AreOperands(in, 1, a) || !(in[0] == in[3])) {
    return BadOperands(Op::kGatedDeltaBackward, "(d_o, q, k, v, g, b, document_start_T)", in, a);
  }
  return Types{in[1], in[2], in[3], in[4], in[5]};
}
// The states once more, and seven products in place of three.
Cost BackwardCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {3.3 * FlopsOf(DeltaDimsOf(in[1], in[2], in[3], a))};
  return cost;
}

Bytes ForwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  const DeltaDims d = DeltaDimsOf(in[0], in[1], in[2], a);
  return Bytes{DeltaScratchOf(d, false).floats * 4 * d.workers(threads)};
}
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  const DeltaDims d = DeltaDimsOf(in[1], in[2], in[3], a);
  return Bytes{DeltaScratchOf(d, true).floats * 4 * d.workers(threads)};
}

// Key heads are dealt to tensor ranks, and the value heads that belong to each go with it.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding p = sink.Settled(sink.sharding(2));
  if (RefusesPartsOfRows("a recurrence", p, sink)) return;
  for (const Axis axis : (p.split(0) & kTensorAxes).axes()) p = Gathered(p, 0, axis);
  const int64_t key_heads = node.attributes.Int("key_heads"), heads = node.attributes.Int("heads");
  const int64_t parts = sink.mesh().size(p.split(1));
  if (key_heads % parts != 0) {
    return sink.Refuse(fmt::format("{} key heads of a linear attention do not divide among {} ranks of {}", key_heads,
                                   parts, p.split(1).ToString()));
  }
  Sharding start = p;
  start.varying |= start.split(1);
  start.dims[1].clear();
  Attributes attributes = node.attributes;
  attributes.Set("key_heads", key_heads / parts);
  attributes.Set("heads", heads / parts);
  std::vector<ValueId> inputs;
  for (int i = 0; i < 6; ++i) inputs.push_back(sink.Use(i, i == 5 ? start : p));
  sink.Deliver(0, sink.Emit(Op::kGatedDelta, std::move(inputs), std::move(attributes), {p})[0]);
}

Result<Types> InferCached(const Types& in, const Attributes& a) {
  const DeltaDims d = in.size() == 8 ? DeltaDimsOf(in[0], in[1], in[2], a) : DeltaDims{};
  const DType f32 = d.key_heads > 0 ? StatisticDType(in[0].dtype) : DType::kF32;
  if (d.key_heads <= 0 || !IsFloat(in[0]) || !(in[3] == TensorType{f32, {d.tokens, d.value_heads}}) ||
      !(in[4] == TensorType{in[0].dtype, {d.tokens, d.value_heads}}) || in[5].shape.rank() != 4 ||
      in[5].shape[0] <= 0 || !(in[5] == TensorType{f32, {in[5].shape[0], d.value_heads, d.key_dim, d.value_dim}}) ||
      !IsIndex(in[6], d.tokens) || !IsIndex(in[7], d.tokens)) {
    return BadOperands(Op::kGatedDeltaCached,
                       "(q_S(K*D), k_S(K*D), v_S(H*F), g_SH f32, b_SH, state_NHDF f32, slot_S, position_S)", in, a);
  }
  return Types{in[2], in[5]};
}
// Of all slots' states, an upper bound: a step reads and writes those of its tokens.
Cost CachedCost(const Types& in, const Types& out, const Attributes& a) {
  const DeltaDims d = DeltaDimsOf(in[0], in[1], in[2], a);
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {7.0 * static_cast<double>(d.tokens * d.value_heads * d.key_dim * d.value_dim)};
  return cost;
}
// Normed rows of q and k, for each thread.
Bytes CachedWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  const DeltaDims d = DeltaDimsOf(in[0], in[1], in[2], a);
  return Bytes{DeltaStepFloats(d) * 4} * threads;
}
// The state stays where it is.
int CachedOverwrites(const Attributes&, int, int output) {
  return output == 1 ? 5 : -1;
}

constexpr AttributeSpec kAttributes[] = {Size("heads"), Size("key_heads"), OptionalSize("row")};
constexpr AttributeSpec kCachedAttributes[] = {Size("heads"), Size("key_heads")};

constexpr FlowOperand kForwardIn[] = {{"TH"}, {"TH"}, {"TH"}, {"TH"}, {"TH"}, {"T"}};
constexpr FlowOutput kForwardOut[] = {{"TH", {Factors({0, 1, 2, 3, 4, 5})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut, .together = Axis::kCp};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TH"), {"TH"}, {"TH"}, {"TH"}, {"TH"}, {"TH"}, {"T"}};
constexpr uint16_t kAll = Factors({0, 1, 2, 3, 4, 5, 6});
constexpr FlowOutput kBackwardOut[] = {{"TH", {kAll}}, {"TH", {kAll}}, {"TH", {kAll}}, {"TH", {kAll}}, {"TH", {kAll}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut, .together = Axis::kCp};

// A state's elements are as weights: what a token costs does not depend on others.
void AddModelWork(const Types& in, const Attributes& a, ModelWork* work) {
  const DeltaDims d = DeltaDimsOf(in[0], in[1], in[2], a);
  work->weights += static_cast<int64_t>(FlopsOf(d) / static_cast<double>(2 * d.tokens));
}

std::vector<MeasuredCase> MeasuredWith(DType dtype, bool backward) {
  std::vector<MeasuredCase> cases;
  for (const int64_t heads : {4, 8, 16}) {
    constexpr int64_t kTokens = 1024, kDim = 128;
    const TensorType x{dtype, {kTokens, heads * kDim}}, g{DType::kF32, {kTokens, heads}}, b{dtype, {kTokens, heads}};
    const TensorType start{DType::kI32, {kTokens}};
    cases.push_back({.inputs = backward ? Types{x, x, x, x, g, b, start} : Types{x, x, x, g, b, start},
                     .attributes = {{"heads", heads}, {"key_heads", heads}}});
  }
  return cases;
}
std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredWith(dtype, false);
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredWith(dtype, true);
}

}  // namespace

const OpRule kGatedDeltaRule = {.kind = OpKind::kAttention,
                                .attributes = kAttributes,
                                .infer = Infer,
                                .gradient = Gradient,
                                .shard = ShardOperands,
                                .flow = &kForwardFlow,
                                .cost = ForwardCost,
                                .workspace = ForwardWorkspace,
                                .recompute = RecomputeCost::kExpensive,
                                .model_work = AddModelWork,
                                .measured = Measured};
const OpRule kGatedDeltaBackwardRule = {.kind = OpKind::kAttention,
                                        .attributes = kAttributes,
                                        .infer = InferBackward,
                                        .flow = &kBackwardFlow,
                                        .cost = BackwardCost,
                                        .workspace = BackwardWorkspace,
                                        .measured = MeasuredBackward};

const OpRule kGatedDeltaCachedRule = {.kind = OpKind::kAttention,
                                      .attributes = kCachedAttributes,
                                      .infer = InferCached,
                                      .cost = CachedCost,
                                      .workspace = CachedWorkspace,
                                      .overwrites = CachedOverwrites,
                                      .rewinds = false,
                                      .measured_as = Op::kGatedDelta};

}  // namespace temper
