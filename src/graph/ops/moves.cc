// Moves between tiers: bytes, whatever they mean.
#include "graph/ops/rules.h"

namespace temper {
namespace {

template <Op op>
Result<Types> InferMove(const Types& in, const Attributes& a) {
  if (in.size() != 1) return BadOperands(op, "one value", in, a);
  return in;
}

Cost MoveCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 0);
}

constexpr FlowOperand kIn[] = {{"AB", /*linear=*/true}};
constexpr FlowOutput kOut[] = {{.dims = "AB", .products = {Factors({0})}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr AttributeSpec kAttributes[] = {Flag("background")};

}  // namespace

const OpRule kFetchRule = {.attributes = kAttributes, .infer = InferMove<Op::kFetch>, .flow = &kFlow, .cost = MoveCost};
const OpRule kEvictRule = {.attributes = kAttributes, .infer = InferMove<Op::kEvict>, .flow = &kFlow, .cost = MoveCost};

}  // namespace temper
