// Embedding: x[t] = table[index[t] + offset]. OPT's learned positions start at row 2, hence the offset
// (transformers, OPTLearnedPositionalEmbedding).
#include "graph/ops/rules.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !IsMatrix(in[0]) || !IsFloat(in[0]) || in[1].shape.rank() != 1 ||
      !IsIndex(in[1], in[1].shape[0]) || a.IntOr("offset", 0) > in[0].shape[0]) {
    return BadOperands(Op::kEmbedding, "(table_VD, index_T i32)", in, a);
  }
  return Types{{in[0].dtype, {in[1].shape[0], in[0].shape[1]}}};
}

Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return {.read = out[0].bytes() + in[1].bytes(), .written = out[0].bytes()};
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  std::vector<ValueId> inputs = {sink.OutputGradient(0), sink.node().inputs[1]};
  const ValueId acc = sink.Pending(0);
  if (acc != kNoValue) inputs.push_back(acc);
  const int64_t vocab = sink.value(sink.node().inputs[0]).type.shape[0];
  sink.Deliver(0, sink.Emit(Op::kEmbeddingBackward, inputs,
                            {{"acc", int64_t{acc != kNoValue}},
                             {"offset", sink.node().attributes.IntOr("offset", 0)},
                             {"vocab", vocab}})[0]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const size_t want = a.Flag("acc") ? 3 : 2;
  if (in.size() != want || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsIndex(in[1], in[0].shape[0]) ||
      a.IntOr("offset", 0) > a.Int("vocab")) {
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

constexpr AttributeSpec kAttributes[] = {OptionalSize("offset")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("acc"), OptionalSize("offset"), Size("vocab")};

}  // namespace

const OpRule kEmbeddingRule = {.attributes = kAttributes, .infer = Infer, .gradient = Gradient, .cost = ForwardCost};
const OpRule kEmbeddingBackwardRule = {
    .attributes = kBackwardAttributes, .infer = InferBackward, .cost = BackwardCost, .in_place_input = 2};

}  // namespace temper
