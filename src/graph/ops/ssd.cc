// The state-space duality of Mamba-2 (Dao & Gu 2024, Transformers are SSMs; transformers, GraniteMoeHybridMambaLayer):
// a state of state_dim x value_dim per head, zero at a document's start, which a token decays, adds to and reads:
//
//   S <- exp(g_t) S + b_t (dt_t x_t)^T;  y_t = S^T c_t + d x_t
//
// It is gated_delta without the correction. The heads of a group share b and c; g = -exp(A_log) dt and dt come from
// `decay`; d is a number per head. States are in f32. Kernels compute chunks of 64 tokens by products of matrices. The
// forward pass keeps nothing: the backward makes the states at chunks' begins again, in scratch.
#include "graph/ops/ssd.h"

#include <fmt/core.h>

#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// (x, b, c, g, dt, d, document_start).
constexpr int kOperands = 7;

// The first six, from operand `first` on.
bool AreOperands(const Types& in, size_t first, const SsdDims& d) {
  if (d.groups <= 0 || !IsFloat(in[first])) return false;
  const DType dtype = in[first].dtype;
  const TensorType gate{StatisticDType(dtype), {d.tokens, d.heads}};
  return in[first + 3] == gate && in[first + 4] == gate && in[first + 5] == TensorType{dtype, {d.heads}};
}
bool AreInRows(const Types& in, size_t first, const Attributes& a) {
  const SsdDims d = SsdDimsOf(in[first], in[first + 1], in[first + 2], a);
  return AreOperands(in, first, d) && IsIndex(in[first + 6], d.tokens) && d.row > 0 && d.tokens % d.row == 0;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != size_t{kOperands} || !AreInRows(in, 0, a)) {
    return BadOperands(Op::kSsd,
                       "(x_T(H*P), b_T(G*N), c_T(G*N), g_TH f32, dt_TH f32, d_H, document_start_T), H a multiple of G",
                       in, a);
  }
  return Types{in[0]};
}

// Of a token of a head: two products with the state, and a row of a triangle of a chunk. Of each block of heads: a row
// of a square.
double FlopsOf(const SsdDims& d) {
  const auto N = static_cast<double>(d.state_dim), P = static_cast<double>(d.value_dim), C = double{kStateChunk};
  return static_cast<double>(d.tokens) *
         (static_cast<double>(d.heads) * (4 * N * P + C * P) + static_cast<double>(d.groups * d.blocks()) * 2 * C * N);
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {FlopsOf(SsdDimsOf(in[0], in[1], in[2], a))};
  return cost;
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  bool needed = false;
  for (int i = 0; i < 6; ++i) needed = needed || sink.Needs(i);
  if (!needed) return;
  std::vector<ValueId> inputs = {sink.OutputGradient(0)};
  inputs.insert(inputs.end(), node.inputs.begin(), node.inputs.end());
  const auto outputs = sink.Emit(Op::kSsdBackward, std::move(inputs), node.attributes);
  for (int i = 0; i < 5; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, outputs[static_cast<size_t>(i)]);
  }
  if (!sink.Needs(5)) return;
  std::vector<ValueId> terms = {outputs[5]};
  const ValueId acc = sink.Pending(5);
  if (acc != kNoValue) terms.push_back(acc);
  sink.Deliver(5, sink.Emit(Op::kSumRows, std::move(terms), {{"acc", int64_t{acc != kNoValue}}})[0]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() != size_t{kOperands} + 1 || !AreInRows(in, 1, a) || !(in[0] == in[1])) {
    return BadOperands(Op::kSsdBackward, "(d_y, x, b, c, g, dt, d, document_start_T)", in, a);
  }
  return Types{in[1], in[2], in[3], in[4], in[5], in[4]};
}
// The states once more, and six products with states in place of two.
Cost BackwardCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {3.5 * FlopsOf(SsdDimsOf(in[1], in[2], in[3], a))};
  return cost;
}

Bytes ForwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  const SsdDims d = SsdDimsOf(in[0], in[1], in[2], a);
  return Bytes{SsdScratchOf(d, false).floats * 4 * d.workers(threads)};
}
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  const SsdDims d = SsdDimsOf(in[1], in[2], in[3], a);
  return Bytes{(SsdScratchOf(d, true).floats * d.workers(threads) + d.partial_floats()) * 4};
}

// Groups are dealt to tensor ranks, and the heads of each go with it.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding p = sink.Settled(sink.sharding(0));
  if (RefusesPartsOfRows("a recurrence", p, sink)) return;
  for (const Axis axis : (p.split(0) & kTensorAxes).axes()) p = Gathered(p, 0, axis);
  const int64_t groups = node.attributes.Int("groups"), heads = node.attributes.Int("heads");
  const int64_t parts = sink.mesh().size(p.split(1));
  if (groups % parts != 0) {
    return sink.Refuse(
        fmt::format("the groups of heads of a Mamba-2 layer, {}, do not divide among {} ranks of {}: use "
                    "mesh.fsdp, mesh.pp or mesh.dp instead of mesh.tp",
                    groups, parts, p.split(1).ToString()));
  }
  Sharding start = p;
  start.varying |= start.split(1);
  start.dims[1].clear();
  Attributes attributes = node.attributes;
  attributes.Set("groups", groups / parts);
  attributes.Set("heads", heads / parts);
  std::vector<ValueId> inputs;
  for (int i = 0; i < kOperands; ++i) {
    inputs.push_back(sink.Use(i, i == 6 ? start : i == 5 ? VectorBeside(p, 1, sink.mesh()) : p));
  }
  sink.Deliver(0, sink.Emit(Op::kSsd, std::move(inputs), std::move(attributes), {p})[0]);
}

Result<Types> InferCached(const Types& in, const Attributes& a) {
  const SsdDims d = in.size() == 9 ? SsdDimsOf(in[0], in[1], in[2], a) : SsdDims{};
  if (in.size() != 9 || !AreOperands(in, 0, d) || in[6].shape.rank() != 4 || in[6].shape[0] <= 0 ||
      !(in[6] == TensorType{StatisticDType(in[0].dtype), {in[6].shape[0], d.heads, d.state_dim, d.value_dim}}) ||
      !IsIndex(in[7], d.tokens) || !IsIndex(in[8], d.tokens)) {
    return BadOperands(Op::kSsdCached,
                       "(x_S(H*P), b_S(G*N), c_S(G*N), g_SH f32, dt_SH f32, d_H, state_KHNP f32, slot_S, position_S)",
                       in, a);
  }
  return Types{in[0], in[6]};
}
// Of all slots' states, an upper bound: a step reads and writes those of its tokens.
Cost CachedCost(const Types& in, const Types& out, const Attributes& a) {
  const SsdDims d = SsdDimsOf(in[0], in[1], in[2], a);
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {5.0 * static_cast<double>(d.tokens * d.heads * d.state_dim * d.value_dim)};
  return cost;
}
// The state stays where it is.
int CachedOverwrites(const Attributes&, int, int output) {
  return output == 1 ? 6 : -1;
}

constexpr AttributeSpec kAttributes[] = {Size("heads"), Size("groups"), OptionalSize("row")};
constexpr AttributeSpec kCachedAttributes[] = {Size("heads"), Size("groups")};

constexpr FlowOperand kForwardIn[] = {{"TH"}, {"TH"}, {"TH"}, {"TH"}, {"TH"}, {"H"}, {"T"}};
constexpr FlowOutput kForwardOut[] = {{"TH", {Factors({0, 1, 2, 3, 4, 5, 6})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut, .together = Axis::kCp};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TH"), {"TH"}, {"TH"}, {"TH"}, {"TH"}, {"TH"}, {"H"}, {"T"}};
constexpr uint16_t kAll = Factors({0, 1, 2, 3, 4, 5, 6, 7});
constexpr FlowOutput kBackwardOut[] = {{"TH", {kAll}}, {"TH", {kAll}}, {"TH", {kAll}},
                                       {"TH", {kAll}}, {"TH", {kAll}}, {"TH", {kAll}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut, .together = Axis::kCp};

// A state's elements are as weights: what a token costs does not depend on others.
void AddModelWork(const Types& in, const Attributes& a, ModelWork* work) {
  const SsdDims d = SsdDimsOf(in[0], in[1], in[2], a);
  work->weights += static_cast<int64_t>(FlopsOf(d) / static_cast<double>(2 * d.tokens));
}

std::vector<MeasuredCase> MeasuredWith(DType dtype, bool backward) {
  std::vector<MeasuredCase> cases;
  for (const int64_t heads : {16, 32, 64}) {
    constexpr int64_t kTokens = 1024, kState = 128, kValue = 64;
    const TensorType x{dtype, {kTokens, heads * kValue}}, b{dtype, {kTokens, kState}}, g{DType::kF32, {kTokens, heads}};
    const TensorType d{dtype, {heads}}, start{DType::kI32, {kTokens}};
    cases.push_back({.inputs = backward ? Types{x, x, b, b, g, g, d, start} : Types{x, b, b, g, g, d, start},
                     .attributes = {{"heads", heads}, {"groups", int64_t{1}}}});
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

const OpRule kSsdRule = {.kind = OpKind::kAttention,
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
const OpRule kSsdBackwardRule = {.kind = OpKind::kAttention,
                                 .attributes = kAttributes,
                                 .infer = InferBackward,
                                 .flow = &kBackwardFlow,
                                 .cost = BackwardCost,
                                 .workspace = BackwardWorkspace,
                                 .measured = MeasuredBackward};

const OpRule kSsdCachedRule = {.kind = OpKind::kAttention,
                               .attributes = kCachedAttributes,
                               .infer = InferCached,
                               .cost = CachedCost,
                               .overwrites = CachedOverwrites,
                               .rewinds = false,
                               .measured_as = Op::kSsd};

}  // namespace temper
