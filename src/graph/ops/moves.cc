// Moves between tiers: bytes, whatever they mean. Of a value, or of a part: elements from `begin` on in the order of
// memory.
//
//   (x) -> x
//   (x) -> part      attributes begin, count
//   (part, x) -> x   attribute begin: x stays where it is, with these elements replaced
//   (w_E.., expert_P) -> w   attribute routed, of a fetch: the matrices of a stack whose experts have rows; the others
//                    are undefined in the copy, whose readers do not touch them
#include "graph/ops/move_part.h"
#include "graph/ops/rules.h"

namespace temper {
namespace {

template <Op op>
Result<Types> InferMove(const Types& in, const Attributes& a) {
  const int64_t begin = a.IntOr("begin", 0);
  if (a.Flag("routed")) {
    const bool stack = op == Op::kFetch && in.size() == 2 && in[0].shape.rank() == 3 && in[0].shape[0] > 0 &&
                       !in[0].packed() && in[1] == TensorType{DType::kI32, {in[1].shape.elements()}} &&
                       !a.Has("begin") && !a.Has("count");
    if (!stack) return BadOperands(op, "a stack of matrices and the experts of rows", in, a);
    return Types{in[0]};
  }
  if (in.size() == 2) {  // a part of the second
    const int64_t part = in[0].shape.elements(), whole = in[1].shape.elements();
    const bool inside = !in[0].dtype.quantised() && in[0].dtype == in[1].dtype && part <= whole &&
                        begin <= whole - part && a.Has("begin") && !a.Has("count");
    if (!inside) return BadOperands(op, "a part that lies within the value", in, a);
    return Types{in[1]};
  }
  if (in.size() != 1) return BadOperands(op, "one value, or a part and the value", in, a);
  if (!a.Has("count") && begin == 0) return in;
  const int64_t count = a.IntOr("count", 0), whole = in[0].shape.elements();
  if (in[0].dtype.quantised() || count < 1 || count > whole || begin > whole - count)
    return BadOperands(op, "a value with such a part", in, a);
  return Types{{in[0].dtype, {count}}};
}

Cost MoveCost(const Types& in, const Types& out, const Attributes& a) {
  const Bytes moved = BytesOnLink(in[0], in.size() == 2 ? &in[1] : nullptr, out[0], a);
  return {.read = moved, .written = moved};
}

// The part is written into the value where that lies.
int Overwrites(const Attributes& a, int num_inputs, int output) {
  return num_inputs == 2 && output == 0 && !a.Flag("routed") ? 1 : -1;
}

constexpr FlowOperand kIn[] = {{"ABCD", /*linear=*/true}};
constexpr FlowOutput kOut[] = {{.dims = "ABCD", .products = {Factors({0})}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr AttributeSpec kAttributes[] = {Flag("background"), OptionalSize("begin"), OptionalSize("count"),
                                         Flag("routed")};

}  // namespace

const OpRule kFetchRule = {.kind = OpKind::kMemory,
                           .attributes = kAttributes,
                           .infer = InferMove<Op::kFetch>,
                           .flow = &kFlow,
                           .cost = MoveCost,
                           .overwrites = Overwrites};
const OpRule kEvictRule = {.kind = OpKind::kMemory,
                           .attributes = kAttributes,
                           .infer = InferMove<Op::kEvict>,
                           .flow = &kFlow,
                           .cost = MoveCost,
                           .overwrites = Overwrites};

}  // namespace temper
