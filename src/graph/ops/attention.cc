// Attention: causal, grouped-query, isolated by document, optionally within a sliding window. Scores never reach
// memory: the forward keeps only lse, the log of each row's sum of exponentials, from which the backward recomputes
// them (Dao 2023, FlashAttention-2). With a softcap c scores are c * tanh(score / c), after scaling (Gemma 2).
//
// A sink is a learned logit per head that joins a row's sum of exponentials, lse with it, and carries no value
// (transformers, eager_attention_forward of gpt_oss). So the backward computes with lse as without one, and the sink's
// own gradient is -sum over queries of exp(sink - lse) (d_o . o). Slopes (ALiBi) are constants. v may have a width of
// its own (latent attention). Its decoding form is in attention_cached.cc.
#include <fmt/core.h>

#include <algorithm>

#include "graph/ops/attention_heads.h"
#include "graph/ops/attention_scratch.h"
#include "graph/ops/context_attributes.h"
#include "graph/ops/packed_attention_scratch.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// Where tokens are dealt over cp the node stands for a ring of steps: `axes`, `ranks` and `index` say so.
bool GoodRing(const TensorType& q, const Attributes& a) {
  if (!a.Has("axes")) return !a.Has("ranks") && !a.Has("index");
  const auto axes = AxisSet::Parse(a.String("axes"));
  return axes.ok() && *axes == AxisSet(Axis::kCp) && GoodContext(a, "row", q.shape[0]) &&
         q.shape[0] % ContextPartOf(a, "row").local_row() == 0;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const bool good = in.size() >= 4 && HeadsOf(in[0], in[1], in[2], a).heads > 0 && IsIndex(in[3], in[0].shape[0]) &&
                    GoodRing(in[0], a) &&
                    GoodOptions(in, a, AttentionOptionsOf(a, 4), HeadsOf(in[0], in[1], in[2], a)) &&
                    !(a.Has("axes") && (in.size() > 4 || !(in[1] == in[2]) || a.Has(AttentionSlopes::kKey)));
  if (!good) {
    return BadOperands(Op::kAttention, "(q_T(H*E), k_T(K*E), v_T(K*W), document_start_T, [sink_H], [last_T])", in, a);
  }
  return Types{AttendedType(in[0], in[2], a), LseType(in[0], a)};
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
  // q k^T and p v
  cost.flops = {2.0 * static_cast<double>(in[0].shape.elements() + out[0].shape.elements()) * KeysPerQuery(in, a)};
  return cost;
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  const AttentionOptions options = AttentionOptionsOf(node.attributes, 4);
  const bool of_sink = options.sink >= 0 && sink.Needs(options.sink);
  if (!sink.Needs(0) && !sink.Needs(1) && !sink.Needs(2) && !of_sink) return;
  std::vector<ValueId> inputs = {sink.OutputGradient(0), node.inputs[0],  node.inputs[1], node.inputs[2],
                                 node.outputs[0],        node.outputs[1], node.inputs[3]};
  if (of_sink) inputs.push_back(node.inputs[static_cast<size_t>(options.sink)]);
  if (options.last >= 0) inputs.push_back(node.inputs[static_cast<size_t>(options.last)]);
  // A sink that is not trained has done its part in lse.
  Attributes attributes;
  for (const auto& [key, value] : node.attributes.entries()) {
    if (key != "sink" || of_sink) attributes.Set(key, value);
  }
  const auto outputs = sink.Emit(Op::kAttentionBackward, std::move(inputs), std::move(attributes));
  for (int i = 0; i < 3; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, outputs[static_cast<size_t>(i)]);
  }
  if (of_sink) sink.Contribute(options.sink, outputs[3]);
}

// Heads are dealt to tensor ranks. With fewer KV heads than ranks, those ranks share a KV head that differ only along
// axes over which queries alone are split. Tokens dealt over cp stay where they are: keys and values pass by
// (compile/mesh/ring.h).
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding q = sink.Settled(sink.sharding(0)), k = sink.Settled(sink.sharding(1)), v = sink.Settled(sink.sharding(2));
  for (Sharding* p : {&q, &k, &v}) {
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
  const Shape& queries = sink.value(node.inputs[0]).type.shape;
  AttentionSlopes::Cut(sink.box(queries, q).begin[1] / (queries[1] / heads), heads / parts, &attributes);
  const AttentionOptions options = AttentionOptionsOf(node.attributes, 4);
  if (q.split(0).Has(Axis::kCp)) {
    const char* const what = options.sink >= 0                       ? "a sink"
                             : attributes.Has(AttentionSlopes::kKey) ? "ALiBi"
                             : options.last >= 0                     ? "last keys other than the queries themselves"
                             : sink.value(node.inputs[1]).type == sink.value(node.inputs[2]).type
                                 ? nullptr
                                 : "values of another width than keys";
    if (what != nullptr) {
      return sink.Refuse(fmt::format("attention with {} does not go with mesh.cp: rings of steps have none", what));
    }
    const ContextPart part = sink.context();
    attributes.Set("axes", AxisSet(Axis::kCp).ToString());
    attributes.Set("row", part.row);
    attributes.Set("ranks", part.ranks);
    attributes.Set("index", part.index);
  }
  std::vector<ValueId> inputs = {sink.Use(0, q), sink.Use(1, k), sink.Use(2, v), sink.Use(3, sink.sharding(3))};
  if (options.sink >= 0) inputs.push_back(sink.Use(options.sink, VectorBeside(q, 1, sink.mesh())));
  if (options.last >= 0) inputs.push_back(sink.Use(options.last, sink.sharding(options.last)));
  const auto outputs = sink.Emit(Op::kAttention, std::move(inputs), std::move(attributes), {q, q});
  sink.Deliver(0, outputs[0]);
  sink.Deliver(1, outputs[1]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const bool good = in.size() >= 7 && HeadsOf(in[1], in[2], in[3], a).heads > 0 && GoodRing(in[1], a) &&
                    in[0] == AttendedType(in[1], in[3], a) && in[4] == in[0] && in[5] == LseType(in[1], a) &&
                    IsIndex(in[6], in[0].shape[0]) &&
                    GoodOptions(in, a, AttentionOptionsOf(a, 7), HeadsOf(in[1], in[2], in[3], a)) &&
                    !(a.Has("axes") && (in.size() > 7 || !(in[2] == in[3]) || a.Has(AttentionSlopes::kKey)));
  if (!good) {
    return BadOperands(Op::kAttentionBackward, "(d_o, q, k, v, o, lse_TH, document_start_T, [sink_H], [last_T])", in,
                       a);
  }
  Types out = {in[1], in[2], in[3]};
  if (a.Flag("sink")) out.push_back({GradientDType(in[1].dtype), {a.Int("heads")}});
  return out;
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  // Five products, three of q's width and two of o's.
  const double width =
      6.0 * static_cast<double>(in[1].shape.elements()) + 4.0 * static_cast<double>(in[0].shape.elements());
  cost.flops = {width * KeysPerQuery(in, a)};
  return cost;
}

Bytes ForwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  return std::max(AttentionScratchOf(AttentionDimsOf(in[0], in[2], a), false, threads).bytes,
                  PackedScratchOf(in[0], a, false).bytes);
}
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes& a, int threads) {
  return std::max({AttentionScratchOf(AttentionDimsOf(in[1], in[3], a), true, threads).bytes,
                   GpuAttentionScratchOf(in[1], a).bytes, PackedScratchOf(in[1], a, true).bytes});
}
constexpr AttributeSpec kAttributes[] = {Size("heads"),
                                         Size("kv_heads"),
                                         Double("scale"),
                                         OptionalSize("window"),
                                         OptionalDouble("softcap"),
                                         OptionalSize("row"),
                                         OptionalString("axes"),
                                         OptionalSize("ranks"),
                                         OptionalSize("index"),
                                         Flag("sink"),
                                         Flag("last"),
                                         {AttentionSlopes::kKey, AttributeSpec::Kind::kDoubles},
                                         Flag(AttentionSlopes::kRoundedKey)};

// H: heads of a query; where there are fewer KV heads than ranks, keys and values are whole along some axes.
constexpr FlowOperand kForwardIn[] = {{"TH"}, SharedBy("TH"),       SharedBy("TH"),
                                      {"T"},  {"H", false, "sink"}, {"T", false, "last"}};
constexpr FlowOutput kForwardOut[] = {{"TH", {Factors({0, 1, 2, 3, 4, 5})}}, {"TH", {Factors({0, 1, 2, 3, 4, 5})}}};
// Dealt tokens see each other in steps (compile/mesh/ring.h), never here.
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut, .together = Axis::kCp};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TH"), {"TH"}, SharedBy("TH"),       SharedBy("TH"),      {"TH"},
                                       {"TH"},         {"T"},  {"H", false, "sink"}, {"T", false, "last"}};
constexpr FlowOutput kBackwardOut[] = {{"TH", {Factors({0, 1, 2, 3, 4, 5, 6, 8})}, nullptr, 1},
                                       {"TH", {Factors({0, 1, 2, 3, 4, 5, 6, 8})}, nullptr, 2},
                                       {"TH", {Factors({0, 1, 2, 3, 4, 5, 6, 8})}, nullptr, 3},
                                       {"H", {Factors({0, 4, 5, 7})}, "sink"}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut, .together = Axis::kCp};

void AddModelWork(const Types& in, const Attributes& a, ModelWork* work) {
  // q k^T and p v, whose columns are those of v for each head
  const int64_t columns = in[0].shape[1] + in[0].shape[1] / in[1].shape[1] * in[2].shape[1];
  work->flops_per_pair[a.IntOr("window", 0)] += 2.0 * static_cast<double>(columns);
}

std::vector<MeasuredCase> MeasuredWith(DType dtype, bool backward) {
  constexpr int64_t kTokens = 2048;
  struct Heads {
    int64_t heads, kv_heads, head_dim;
  };
  std::vector<MeasuredCase> cases;
  for (const auto& [heads, kv_heads, head_dim] : {Heads{8, 4, 64}, Heads{8, 2, 128}}) {
    for (const int64_t row : {128, 512, 2048}) {
      const TensorType q{dtype, {kTokens, heads * head_dim}}, k{dtype, {kTokens, kv_heads * head_dim}};
      const TensorType start{DType::kI32, {kTokens}}, lse{DType::kF32, {kTokens, heads}};
      cases.push_back({.inputs = backward ? Types{q, q, k, k, q, lse, start} : Types{q, k, k, start},
                       .attributes = {{"heads", heads}, {"kv_heads", kv_heads}, {"scale", 0.125}, {"row", row}}});
    }
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

const OpRule kAttentionRule = {.kind = OpKind::kAttention,
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
const OpRule kAttentionBackwardRule = {.kind = OpKind::kAttention,
                                       .attributes = kAttributes,
                                       .infer = InferBackward,
                                       .flow = &kBackwardFlow,
                                       .cost = BackwardCost,
                                       .workspace = BackwardWorkspace,
                                       .measured = MeasuredBackward};

}  // namespace temper
