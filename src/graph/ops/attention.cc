// Attention: causal, grouped-query, isolated by document, optionally within a sliding window. Scores never reach
// memory: the forward keeps only lse, the log of each row's sum of exponentials, from which the backward recomputes
// them (Dao 2023, FlashAttention-2). attention_cached is the decoding form over a cache of earlier keys and values.
#include <fmt/format.h>

#include <algorithm>

#include "graph/ops/attention_scratch.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

struct Heads {
  int64_t tokens, heads, kv_heads, head_dim;
};

// The head layout of q, k, v, or an error-free "no": heads == 0.
Heads HeadsOf(const TensorType& q, const TensorType& k, const TensorType& v, const Attributes& a) {
  const int64_t h = a.Int("heads"), kv = a.Int("kv_heads");
  const bool good = IsMatrix(q) && IsFloat(q) && IsMatrix(k) && k == v && q.dtype == k.dtype && h > 0 && kv > 0 &&
                    h % kv == 0 && q.shape[1] % h == 0 && k.shape[1] == q.shape[1] / h * kv && q.shape[0] == k.shape[0];
  return good ? Heads{q.shape[0], h, kv, q.shape[1] / h} : Heads{};
}

TensorType LseType(const TensorType& q, const Attributes& a) {
  return {StatisticDType(q.dtype), {q.shape[0], a.Int("heads")}};
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 4 || HeadsOf(in[0], in[1], in[2], a).heads == 0 || !IsIndex(in[3], in[0].shape[0])) {
    return BadOperands(Op::kAttention, "(q_T(H*E), k_T(K*E), v_T(K*E), document_start_T)", in, a);
  }
  return Types{in[0], LseType(in[0], a)};
}

// Shapes do not show document lengths, so this is the cost of one causal document as long as a row (attribute `row`,
// the packed row length; all tokens where absent): row/2 keys per query on average.
double KeysPerQuery(const Types& in, const Attributes& a) {
  const int64_t row = a.IntOr("row", in[0].shape[0]);
  const int64_t window = a.IntOr("window", 0);
  const double causal = static_cast<double>(row + 1) / 2;
  return window > 0 ? std::min(causal, static_cast<double>(window)) : causal;
}

Cost ForwardCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {4.0 * static_cast<double>(in[0].shape.elements()) * KeysPerQuery(in, a)};  // q k^T and p v
  return cost;
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  if (!sink.Needs(0) && !sink.Needs(1) && !sink.Needs(2)) return;
  const auto outputs = sink.Emit(Op::kAttentionBackward,
                                 {sink.OutputGradient(0), node.inputs[0], node.inputs[1], node.inputs[2],
                                  node.outputs[0], node.outputs[1], node.inputs[3]},
                                 node.attributes);
  for (int i = 0; i < 3; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, outputs[static_cast<size_t>(i)]);
  }
}

// Heads are dealt to tensor ranks; where there are fewer KV heads than ranks, ranks along the axes that only queries
// are split over share one.
void Sharding(ShardingSink& sink) {
  const Node& node = sink.node();
  Placement q = sink.Settled(sink.placement(0)), k = sink.Settled(sink.placement(1)),
            v = sink.Settled(sink.placement(2));
  for (Placement* p : {&q, &k, &v}) {
    for (const Axis axis : (p->split(0) & kTensorAxes).axes()) *p = Gathered(*p, 0, axis);
  }
  const std::vector<Axis>&of_q = q.dims[1], &of_k = k.dims[1];
  if (v.dims[1] != of_k || of_k.size() > of_q.size() || !std::equal(of_k.begin(), of_k.end(), of_q.begin())) {
    return sink.Refuse(
        fmt::format("queries are split over '{}', keys over '{}', values over '{}': keys and values must "
                    "be split alike, over the first of the axes that queries are split over",
                    q.split(1).ToString(), k.split(1).ToString(), v.split(1).ToString()));
  }
  const int64_t heads = node.attributes.Int("heads"), kv_heads = node.attributes.Int("kv_heads");
  const int64_t parts = sink.mesh().size(q.split(1)), kv_parts = sink.mesh().size(k.split(1));
  const bool shared = parts != kv_parts;  // then each rank has exactly one KV head
  if (heads % parts != 0 || kv_heads % kv_parts != 0 || (shared && kv_heads != kv_parts)) {
    return sink.Refuse(
        fmt::format("{} heads and {} KV heads do not divide among {} tensor-parallel ranks", heads, kv_heads, parts));
  }
  UseAlike({&q, &k, &v}, sink.mesh());
  Attributes attributes = node.attributes;
  attributes.Set("heads", heads / parts);
  attributes.Set("kv_heads", kv_heads / kv_parts);
  const std::vector<ValueId> inputs = {sink.Use(0, q), sink.Use(1, k), sink.Use(2, v), sink.Use(3, sink.placement(3))};
  const auto outputs = sink.Emit(Op::kAttention, inputs, std::move(attributes), {q, q});
  sink.Deliver(0, outputs[0]);
  sink.Deliver(1, outputs[1]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() != 7 || HeadsOf(in[1], in[2], in[3], a).heads == 0 || !(in[0] == in[1]) || !(in[4] == in[1]) ||
      !(in[5] == LseType(in[1], a)) || !IsIndex(in[6], in[0].shape[0])) {
    return BadOperands(Op::kAttentionBackward, "(d_o, q, k, v, o, lse_TH, document_start_T)", in, a);
  }
  return Types{in[1], in[2], in[3]};
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {10.0 * static_cast<double>(in[0].shape.elements()) * KeysPerQuery(in, a)};  // five products
  return cost;
}

Result<Types> InferCached(const Types& in, const Attributes& a) {
  const bool good = in.size() == 6 && HeadsOf(in[0], in[1], in[2], a).heads > 0 && IsMatrix(in[3]) && in[3] == in[4] &&
                    in[3].shape[1] == in[1].shape[1] && in[3].dtype == in[1].dtype && IsIndex(in[5], 1);
  if (!good) {
    return BadOperands(Op::kAttentionCached, "(q_S(H*E), k_S(K*E), v_S(K*E), k_cache_C(K*E), v_cache_C(K*E), length_1)",
                       in, a);
  }
  return Types{in[0], in[3], in[4]};
}
// The whole cache is an upper bound; a decode step reads `length` rows of it.
Cost CachedCost(const Types& in, const Types& out, const Attributes&) {
  Cost cost = ElementwiseCost(in, {out[0]}, 0);
  cost.flops = {4.0 * static_cast<double>(in[0].shape.elements()) * static_cast<double>(in[3].shape[0])};
  return cost;
}

Bytes ForwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  return AttentionScratchOf(AttentionDimsOf(in[0], a), false, threads).bytes;
}
// GPUs keep d_o . o of every query and head there, f32.
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  return std::max(AttentionScratchOf(AttentionDimsOf(in[1], a), true, threads).bytes,
                  Bytes{in[5].shape.elements() * SizeOf(DType::kF32)});
}
Bytes CachedWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  const int64_t head_dim = in[0].shape[1] / a.Int("heads");
  return AttentionScratchOf({in[0].shape[0], in[3].shape[0], head_dim}, false, threads).bytes;
}

// The caches grow where they are.
int CachedOverwrites(const Attributes&, int, int output) {
  return output == 0 ? -1 : 2 + output;
}

constexpr AttributeSpec kAttributes[] = {Size("heads"), Size("kv_heads"), Double("scale"), OptionalSize("window"),
                                         OptionalSize("row")};

}  // namespace

const OpRule kAttentionRule = {.attributes = kAttributes,
                               .infer = Infer,
                               .gradient = Gradient,
                               .shard = Sharding,
                               .cost = ForwardCost,
                               .workspace = ForwardWorkspace};
const OpRule kAttentionBackwardRule = {
    .attributes = kAttributes, .infer = InferBackward, .cost = BackwardCost, .workspace = BackwardWorkspace};
const OpRule kAttentionCachedRule = {.attributes = kAttributes,
                                     .infer = InferCached,
                                     .cost = CachedCost,
                                     .workspace = CachedWorkspace,
                                     .overwrites = CachedOverwrites};

}  // namespace temper
