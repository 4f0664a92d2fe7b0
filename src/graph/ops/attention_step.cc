// One step of ring attention: this rank's queries against the keys and values of one rank of a context-parallel group
// (Liu 2023, Ring Attention; compile/mesh/ring.h puts the steps together). Attributes say which tokens both have
// (tensor/context_part.h), so that a kernel leaves out what causality excludes.
//
// Forward, o and lse are those of all keys seen so far: a step takes those before it as one more key that scores lse
// and has o as its value. o is f32 until the last step, so that it is rounded once. Backward, every step starts from
// the final o and lse: d_q adds up on this rank, d_k and d_v are this step's contribution to those of rank `origin`.
#include <algorithm>
#include <limits>

#include "graph/ops/attention_heads.h"
#include "graph/ops/attention_scratch.h"
#include "graph/ops/context_attributes.h"
#include "graph/ops/rules.h"

namespace temper {
namespace {

// Sums over steps.
TensorType SumType(const TensorType& x) {
  return {StatisticDType(x.dtype), x.shape};
}

bool HeadsAlike(const TensorType& q, const TensorType& k, const TensorType& v, const Attributes& a) {
  return HeadsOf(q, k, v, a).heads > 0 && k == v;
}

// Whole rows, dealt to ranks of which `origin` is one. The first step is that of the own keys: every query sees one.
// document_start_T holds places, in 32 bits.
bool GoodStep(const TensorType& q, const Attributes& a) {
  const int64_t T = q.shape[0];
  if (!GoodContext(a, "row", T) || a.Int("origin") >= a.Int("ranks")) return false;
  if (!a.Flag("acc") && a.Int("origin") != a.Int("index")) return false;
  const ContextPart part = ContextPartOf(a, "row");
  return T % part.local_row() == 0 && T <= std::numeric_limits<int32_t>::max() / part.ranks;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const bool acc = a.Flag("acc");
  if (in.size() != 4u + 2u * acc || !HeadsAlike(in[0], in[1], in[2], a) || !GoodStep(in[0], a) ||
      !IsIndex(in[3], in[0].shape[0]) || (acc && (!(in[4] == SumType(in[0])) || !(in[5] == LseType(in[0], a))))) {
    return BadOperands(Op::kAttentionStep, "(q_T(H*E), k_T(K*E), v_T(K*E), document_start_T, [o, lse_TH])", in, a);
  }
  return Types{SumType(in[0]), LseType(in[0], a)};
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const bool acc = a.Flag("acc");
  if (in.size() != 7u + acc || !HeadsAlike(in[1], in[2], in[3], a) || !GoodStep(in[1], a) || !(in[0] == in[1]) ||
      !(in[4] == in[1]) || !(in[5] == LseType(in[1], a)) || !IsIndex(in[6], in[0].shape[0]) ||
      (acc && !(in[7] == SumType(in[1])))) {
    return BadOperands(Op::kAttentionStepBackward, "(d_o, q, k, v, o, lse_TH, document_start_T, [d_q])", in, a);
  }
  return Types{SumType(in[1]), SumType(in[2]), SumType(in[3])};
}

// Pairs of a query and a key that it may see, were each row one document.
double Pairs(int64_t tokens, const Attributes& a) {
  const ContextPart queries = ContextPartOf(a, "row"), keys = ContextPartOf(a, "row", "origin");
  const int64_t window = a.IntOr("window", 0);
  int64_t pairs = 0;
  for (int64_t t = 0; t < queries.local_row(); ++t) {
    const int64_t place = queries.PlaceOf(t);
    const int64_t first = window > 0 ? std::max<int64_t>(0, place - window + 1) : 0;
    pairs += keys.LocalFrom(place + 1) - keys.LocalFrom(first);
  }
  return static_cast<double>(pairs) * static_cast<double>(tokens / queries.local_row());
}

Cost ForwardCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {4.0 * static_cast<double>(in[0].shape[1]) * Pairs(in[0].shape[0], a)};  // q k^T and p v
  return cost;
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {10.0 * static_cast<double>(in[1].shape[1]) * Pairs(in[1].shape[0], a)};  // five products
  return cost;
}

AttentionScratch ScratchOf(const TensorType& q, const Attributes& a, bool backward, int threads) {
  const int64_t head_dim = q.shape[1] / a.Int("heads");
  return AttentionScratchOf({q.shape[0], ContextPartOf(a, "row").local_row(), head_dim, head_dim}, backward, threads);
}
Bytes ForwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  return ScratchOf(in[0], a, false, threads).bytes;
}
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  return std::max(ScratchOf(in[1], a, true, threads).bytes, GpuAttentionScratchOf(in[1], a).bytes);
}

int ForwardOverwrites(const Attributes& a, int, int output) {
  return a.Flag("acc") ? 4 + output : -1;
}
int BackwardOverwrites(const Attributes& a, int, int output) {
  return a.Flag("acc") && output == 0 ? 7 : -1;
}

constexpr AttributeSpec kAttributes[] = {
    Size("heads"), Size("kv_heads"), Double("scale"), OptionalSize("window"), OptionalDouble("softcap"),
    Size("row"),   Size("ranks"),    Size("index"),   Size("origin"),         Flag("acc")};

// As of attention (graph/ops/attention.cc); that the steps of a ring see all keys is for compile/mesh/verify_ring.h.
constexpr FlowOperand kForwardIn[] = {{"TH"}, SharedBy("TH"),       SharedBy("TH"),
                                      {"T"},  {"TH", false, "acc"}, {"TH", false, "acc"}};
constexpr FlowOutput kForwardOut[] = {{"TH", {Factors({0, 1, 2, 3, 4, 5})}}, {"TH", {Factors({0, 1, 2, 3, 4, 5})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TH"), {"TH"}, SharedBy("TH"), SharedBy("TH"),
                                       {"TH"},         {"TH"}, {"T"},          LinearIn("TH", "acc")};
constexpr FlowOutput kBackwardOut[] = {{"TH", {Factors({0, 1, 2, 3, 4, 5, 6}), Factors({7})}, nullptr, 1},
                                       {"TH", {Factors({0, 1, 2, 3, 4, 5, 6})}, nullptr, 2},
                                       {"TH", {Factors({0, 1, 2, 3, 4, 5, 6})}, nullptr, 3}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

}  // namespace

const OpRule kAttentionStepRule = {.kind = OpKind::kAttention,
                                   .attributes = kAttributes,
                                   .infer = Infer,
                                   .flow = &kForwardFlow,
                                   .cost = ForwardCost,
                                   .workspace = ForwardWorkspace,
                                   .overwrites = ForwardOverwrites,
                                   .measured_as = Op::kAttention};
const OpRule kAttentionStepBackwardRule = {.kind = OpKind::kAttention,
                                           .attributes = kAttributes,
                                           .infer = InferBackward,
                                           .flow = &kBackwardFlow,
                                           .cost = BackwardCost,
                                           .workspace = BackwardWorkspace,
                                           .overwrites = BackwardOverwrites,
                                           .measured_as = Op::kAttentionBackward};

}  // namespace temper
