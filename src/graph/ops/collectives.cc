// Collectives: what ranks of a group give each other. Volumes are those of a ring, which no algorithm undercuts: of n
// ranks, each sends (n-1)/n of the whole for an all_gather or a reduce_scatter, twice that for an all_reduce, and all
// it gives for a shift.
#include <cmath>

#include "graph/ops/rules.h"
#include "tensor/mesh.h"

namespace temper {
namespace {

bool GoodGroup(const Attributes& a) {
  const auto axes = AxisSet::Parse(a.String("axes"));
  return axes.ok() && !axes->empty() && a.Int("ranks") >= 2;
}

// The types of `in`, each with dim `dim` as long as `sizes` says; empty where the attributes do not fit.
Types Resized(std::span<const TensorType> in, const Attributes& a) {
  const int64_t dim = a.Int("dim");
  const std::vector<double>& sizes = a.Doubles("sizes");
  Types out;
  if (sizes.size() != in.size()) return out;
  for (size_t i = 0; i < in.size(); ++i) {
    if (dim >= in[i].shape.rank() || (in[i].dtype.quantised() && dim > 0) || !(sizes[i] >= 0) ||
        sizes[i] != std::floor(sizes[i]) || sizes[i] > 0x1p40) {
      return {};
    }
    out.push_back(in[i]);
    out.back().shape.set_dim(static_cast<int>(dim), static_cast<int64_t>(sizes[i]));
  }
  return out;
}

// The whole is at least as long as a part.
bool Contains(const TensorType& whole, const TensorType& part, const Attributes& a) {
  const int dim = static_cast<int>(a.Int("dim"));
  return whole.shape[dim] >= part.shape[dim];
}

Result<Types> InferAllGather(const Types& in, const Attributes& a) {
  Types out = Resized(in, a);
  bool good = !in.empty() && out.size() == in.size() && GoodGroup(a);
  for (size_t i = 0; good && i < in.size(); ++i) good = Contains(out[i], in[i], a);
  if (!good) return BadOperands(Op::kAllGather, "parts, and the size of the whole for each", in, a);
  return out;
}

Result<Types> InferReduceScatter(const Types& in, const Attributes& a) {
  const bool acc = a.Flag("acc");
  const size_t n = acc ? in.size() / 2 : in.size();
  bool good = n > 0 && (!acc || in.size() % 2 == 0);
  Types out = good ? Resized(std::span(in).first(n), a) : Types();
  good = good && out.size() == n && GoodGroup(a);
  for (size_t i = 0; good && i < n; ++i) {
    good = IsFloat(in[i]) && Contains(in[i], out[i], a) && (!acc || in[n + i] == out[i]);
  }
  if (!good) return BadOperands(Op::kReduceScatter, "(term..., [acc...]), and the size of the part for each", in, a);
  return out;
}

Result<Types> InferAllReduce(const Types& in, const Attributes& a) {
  bool good = !in.empty() && GoodGroup(a);
  for (const TensorType& t : in) good = good && IsFloat(t);
  if (!good) return BadOperands(Op::kAllReduce, "floating terms", in, a);
  return in;
}

Result<Types> InferBroadcast(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !GoodGroup(a)) return BadOperands(Op::kBroadcast, "one value", in, a);
  return in;
}

Result<Types> InferShift(const Types& in, const Attributes& a) {
  if (in.empty() || !GoodGroup(a)) return BadOperands(Op::kShift, "values", in, a);
  return in;
}

Attributes Group(const Attributes& a) {
  return {{"axes", a.String("axes")}, {"ranks", a.Int("ranks")}};
}

// Differentiate meets collectives of one tensor; they are coalesced later.
void AllGatherGradient(GradientSink& sink) {
  const Node& node = sink.node();
  TEMPER_CHECK(node.inputs.size() == 1) << "gradient of a coalesced all_gather";
  if (!sink.Needs(0)) return;
  const int64_t dim = node.attributes.Int("dim");
  Attributes attributes = Group(node.attributes);
  attributes.Set("dim", dim);
  const Shape& part = sink.value(node.inputs[0]).type.shape;
  attributes.Set("sizes", std::vector<double>{static_cast<double>(part[static_cast<int>(dim)])});
  const ValueId acc = sink.Pending(0);
  attributes.Set("acc", int64_t{acc != kNoValue});
  std::vector<ValueId> inputs = {sink.OutputGradient(0)};
  if (acc != kNoValue) inputs.push_back(acc);
  sink.Deliver(0, sink.Emit(Op::kReduceScatter, inputs, std::move(attributes))[0]);
}

void ReduceScatterGradient(GradientSink& sink) {
  const Node& node = sink.node();
  TEMPER_CHECK(node.inputs.size() == 1 && !node.attributes.Flag("acc")) << "gradient of a coalesced reduce_scatter";
  if (!sink.Needs(0)) return;
  const int64_t dim = node.attributes.Int("dim");
  Attributes attributes = Group(node.attributes);
  attributes.Set("dim", dim);
  const Shape& whole = sink.value(node.inputs[0]).type.shape;
  attributes.Set("sizes", std::vector<double>{static_cast<double>(whole[static_cast<int>(dim)])});
  sink.Contribute(0, sink.Emit(Op::kAllGather, {sink.OutputGradient(0)}, std::move(attributes))[0]);
}

void AllReduceGradient(GradientSink& sink) {
  TEMPER_CHECK(sink.node().inputs.size() == 1) << "gradient of a coalesced all_reduce";
  if (sink.Needs(0)) sink.Contribute(0, sink.OutputGradient(0));
}

void BroadcastGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  sink.Contribute(0, sink.Emit(Op::kAllReduce, {sink.OutputGradient(0)}, Group(sink.node().attributes))[0]);
}

Bytes Sum(const Types& types) {
  Bytes sum;
  for (const TensorType& t : types) sum += t.bytes();
  return sum;
}

Cost AllGatherCost(const Types& in, const Types& out, const Attributes& a) {
  return {.read = Sum(in), .written = Sum(out), .sent = Sum(out) * (a.Int("ranks") - 1) / a.Int("ranks")};
}
Cost ReduceScatterCost(const Types& in, const Types& out, const Attributes& a) {
  const Types terms(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(out.size()));
  return {.read = Sum(in), .written = Sum(out), .sent = Sum(terms) * (a.Int("ranks") - 1) / a.Int("ranks")};
}
Cost AllReduceCost(const Types& in, const Types& out, const Attributes& a) {
  return {.read = Sum(in), .written = Sum(out), .sent = Sum(in) * 2 * (a.Int("ranks") - 1) / a.Int("ranks")};
}
Cost ShiftCost(const Types& in, const Types& out, const Attributes&) {
  return {.read = Sum(in), .written = Sum(out), .sent = Sum(in)};
}
Cost BroadcastCost(const Types&, const Types&, const Attributes&) {
  return {};
}

int AroundTheRing(int ranks) {
  return ranks - 1;
}
// A reduce_scatter, then an all_gather.
int TwiceAroundTheRing(int ranks) {
  return 2 * (ranks - 1);
}
int ToTheNeighbour(int) {
  return 1;
}

int ReduceScatterOverwrites(const Attributes& a, int num_inputs, int output) {
  return a.Flag("acc") ? num_inputs / 2 + output : -1;
}
int AllReduceOverwrites(const Attributes&, int, int output) {
  return output;
}

constexpr AttributeSpec kGroupAttributes[] = {String("axes"), Size("ranks")};
constexpr AttributeSpec kShiftAttributes[] = {String("axes"), Size("ranks"), Flag("background")};
constexpr AttributeSpec kAllReduceAttributes[] = {String("axes"), Size("ranks"), Flag("background"), Flag("soon")};
constexpr AttributeSpec kAllGatherAttributes[] = {String("axes"),   Size("ranks"),      Size("dim"),
                                                  Doubles("sizes"), Flag("background"), Flag("soon")};
constexpr AttributeSpec kReduceScatterAttributes[] = {String("axes"), Size("ranks"),      Size("dim"), Doubles("sizes"),
                                                      Flag("acc"),    Flag("background"), Flag("soon")};

}  // namespace

const OpRule kAllGatherRule = {.kind = OpKind::kCollective,
                               .attributes = kAllGatherAttributes,
                               .infer = InferAllGather,
                               .gradient = AllGatherGradient,
                               .cost = AllGatherCost,
                               .turns = AroundTheRing,
                               .recompute = RecomputeCost::kExpensive};
const OpRule kReduceScatterRule = {.kind = OpKind::kCollective,
                                   .attributes = kReduceScatterAttributes,
                                   .infer = InferReduceScatter,
                                   .gradient = ReduceScatterGradient,
                                   .cost = ReduceScatterCost,
                                   .overwrites = ReduceScatterOverwrites,
                                   .turns = AroundTheRing,
                                   .recompute = RecomputeCost::kExpensive};
const OpRule kAllReduceRule = {.kind = OpKind::kCollective,
                               .attributes = kAllReduceAttributes,
                               .infer = InferAllReduce,
                               .gradient = AllReduceGradient,
                               .cost = AllReduceCost,
                               .overwrites = AllReduceOverwrites,
                               .turns = TwiceAroundTheRing,
                               .recompute = RecomputeCost::kExpensive};
const OpRule kBroadcastRule = {.kind = OpKind::kCollective,
                               .attributes = kGroupAttributes,
                               .infer = InferBroadcast,
                               .gradient = BroadcastGradient,
                               .cost = BroadcastCost,
                               .in_place_input = 0,
                               .recompute = RecomputeCost::kExpensive};
const OpRule kShiftRule = {.kind = OpKind::kCollective,
                           .attributes = kShiftAttributes,
                           .infer = InferShift,
                           .cost = ShiftCost,
                           .turns = ToTheNeighbour};

}  // namespace temper
