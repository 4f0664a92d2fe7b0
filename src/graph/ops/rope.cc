// Rotary position embedding (Su et al. 2021) in the half-split layout of HF files (transformers, rotate_half): element
// e of the first half of a head is paired with element e of the second half. The table is made once per micro-batch and
// serves every layer; the adjoint of a rotation is the rotation by the negative angle. A table narrower than a head
// turns the head's first elements, or those from `first` on (latent attention), and the others pass. Interleaved
// (transformers, GlmAttention): element 2 i is paired with 2 i + 1, and the table's cosines and sines alternate
// likewise.
//
// Tables may be scaled, as YaRN and longrope do, and by the position, as Ministral 3 does with q (transformers,
// get_llama_4_attn_scale): scale * (1 + beta ln(1 + floor(position / original))).
//
// Positions may be shifted, and sines stand before cosines: sinusoids that are added to embeddings (Vaswani et al.
// 2017; transformers, XGLMSinusoidalPositionalEmbedding).
//
// A table may also go by the length of each token's document (attribute document_length, a second operand): longrope
// and dynamic scaling have other frequencies for long documents (rope_table.h), and documents share rows.
#include <fmt/core.h>

#include "graph/ops/measured.h"
#include "graph/ops/rope_table.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// What a table by document needs to know of long ones: their frequencies, or how theta grows.
bool GoodLengths(const Attributes& a) {
  const RopeFrequencies f(a);
  if (!f.by_document) return f.long_inv_freq.empty() && f.near == 0 && f.theta == 0 && f.factor == 0;
  if (!f.long_inv_freq.empty()) return f.long_inv_freq.size() == f.inv_freq.size() && f.theta == 0 && f.factor == 0;
  return f.near > 0 && f.theta > 0 && f.factor > 0 && f.inv_freq.size() > 1;
}

Result<Types> InferTable(const Types& in, const Attributes& a) {
  const bool by_document = a.Flag("document_length");
  if (in.size() != (by_document ? 2 : 1) || in[0].shape.rank() != 1 || !IsIndex(in[0], in[0].shape[0]) ||
      !(in.back() == in[0]) || !GoodLengths(a) || (a.Flag("sines_first") && a.Flag("interleaved"))) {
    return BadOperands(Op::kRopeTable, "(position_T i32, [document_length_T i32])", in, a);
  }
  const auto half = static_cast<int64_t>(a.Doubles("inv_freq").size());
  const DType dtype = a.Flag("f64") ? DType::kF64 : DType::kF32;
  return Types{{dtype, {in[0].shape[0], 2 * half}}};
}
// A sine and a cosine cost about 20 operations each.
Cost TableCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 20);
}

Result<Types> InferRope(const Types& in, const Attributes& a) {
  const int64_t e = a.Int("head_dim");
  if (in.size() != 2 || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsMatrix(in[1]) || e <= 0 || e % 2 != 0 ||
      in[1].shape[1] > e || a.IntOr("first", 0) > e - in[1].shape[1] || in[1].shape[1] % 2 != 0 ||
      in[1].dtype != StatisticDType(in[0].dtype) || in[0].shape[0] != in[1].shape[0] || in[0].shape[1] % e != 0) {
    return BadOperands(Op::kRope, "(x_T(H*E), table_TR)", in, a);
  }
  return Types{in[0]};
}
void RopeGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  Attributes attributes = sink.node().attributes;
  attributes.Set("inverse", int64_t{!attributes.Flag("inverse")});
  sink.Contribute(0, sink.Emit(Op::kRope, {sink.OutputGradient(0), sink.node().inputs[1]}, attributes)[0]);
}
// The table is made from the positions of this rank's rows, as long as x has whole rows.
void ShardTable(ShardingSink& sink) {
  if (sink.node().attributes.Flag("sines_first") && !(sink.mesh().axes() & kTensorAxes).empty()) {
    // They are added to embeddings, which are terms of a sum over these ranks.
    return sink.Refuse("models whose positions are sinusoids do not go with mesh.tp");
  }
  const Sharding p = sink.sharding(0);
  std::vector<ValueId> inputs = {sink.Use(0, p)};
  if (sink.node().inputs.size() > 1) inputs.push_back(sink.Use(1, p));
  sink.Deliver(0, sink.Emit(Op::kRopeTable, std::move(inputs), sink.node().attributes, {p})[0]);
}
// Whole heads on each rank, of all the tokens that the table has.
void ShardRope(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding p = sink.Settled(sink.sharding(0));
  for (const Axis axis : (p.split(0) & kTensorAxes).axes()) p = Gathered(p, 0, axis);
  const int64_t columns = sink.box(sink.value(node.inputs[0]).type.shape, p).shape[1];
  const int64_t head_dim = node.attributes.Int("head_dim");
  if (columns % head_dim != 0) {
    return sink.Refuse(fmt::format("{} heads do not divide among {} ranks of {}",
                                   sink.value(node.inputs[0]).type.shape[1] / head_dim, sink.mesh().size(p.split(1)),
                                   p.split(1).ToString()));
  }
  Sharding table = p;
  table.varying |= table.split(1);
  table.dims[1].clear();
  const ValueId x = sink.Use(0, p);
  sink.Deliver(0, sink.Emit(Op::kRope, {x, sink.Use(1, table)}, node.attributes, {p})[0]);
}
Cost RopeCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 3);
}

constexpr AttributeSpec kLongFrequencies = {"long_inv_freq", AttributeSpec::Kind::kDoubles};
constexpr AttributeSpec kTableAttributes[] = {
    Doubles("inv_freq"),     Flag("f64"),           Flag("interleaved"),    OptionalDouble("scale"),
    Flag("sines_first"),     OptionalSize("shift"), OptionalDouble("beta"), OptionalSize("original"),
    Flag("document_length"), OptionalSize("near"),  kLongFrequencies,       OptionalDouble("theta"),
    OptionalDouble("factor")};
constexpr AttributeSpec kRopeAttributes[] = {Size("head_dim"), Flag("inverse"), Flag("interleaved"),
                                             OptionalSize("first")};

constexpr FlowOperand kTableIn[] = {{"T"}, {"T", false, "document_length"}};
constexpr FlowOutput kTableOut[] = {{"Te", {Factors({0, 1})}}};
constexpr FlowRule kTableFlow = {.in = kTableIn, .out = kTableOut};
constexpr FlowOperand kRopeIn[] = {LinearIn("TH"), {"Te"}};
constexpr FlowOutput kRopeOut[] = {{"TH", {Factors({0, 1})}}};
constexpr FlowRule kRopeFlow = {.in = kRopeIn, .out = kRopeOut};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAtExtents(dtype, {{"head_dim", int64_t{64}}, {"inverse", int64_t{0}}}, [](const TensorType& x) {
    return Types{x, {DType::kF32, {x.shape[0], 64}}};
  });
}

}  // namespace

const OpRule kRopeTableRule = {.kind = OpKind::kMemory,
                               .attributes = kTableAttributes,
                               .infer = InferTable,
                               .shard = ShardTable,
                               .flow = &kTableFlow,
                               .cost = TableCost};
const OpRule kRopeRule = {.kind = OpKind::kMemory,
                          .attributes = kRopeAttributes,
                          .infer = InferRope,
                          .gradient = RopeGradient,
                          .shard = ShardRope,
                          .flow = &kRopeFlow,
                          .cost = RopeCost,
                          .in_place_input = 0,
                          .recompute = RecomputeCost::kCheap,
                          .measured = Measured};

}  // namespace temper
