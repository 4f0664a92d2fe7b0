// Stochastic rounding to bf16 (Gupta et al. 2015; torchao's _fp32_to_bf16_sr): the 16 bits that bf16 lacks are the
// odds, of 65,536, that x becomes its neighbour away from zero. Its mean is x, so that updates smaller than half of a
// weight's last place add up over steps. Draws are keyed by an element's place in the whole weight, as dropout's are by
// its place in the batch.
#include "graph/ops/draws.h"
#include "graph/ops/rules.h"

namespace temper {
namespace {

// Of a weight's part in a stack `column` may also count whole rows that lie before it in each matrix.
Result<Types> Infer(const Types& in, const Attributes& a) {
  const bool good =
      in.size() == 2 && in[0].dtype == DType::kF32 && !in[0].packed() &&
      in[1] == TensorType{DType::kI64, {kNumRngWords}} &&
      (!a.Has("columns") || in[0].shape.columns() <= a.Int("columns")) &&
      (a.Has("packed_row") ? a.Has("drawn_row") && GoodDrawPlaces(a, in[0].shape.rows()) : !a.Has("drawn_row"));
  if (!good) {
    return BadOperands(Op::kStochasticRound, "(x f32, rng i64[3]), columns of x within `columns`, rows in chunks", in,
                       a);
  }
  return Types{{DType::kBF16, in[0].shape}};
}

constexpr AttributeSpec kAttributes[] = {OptionalSize("row"), OptionalSize("column"), OptionalSize("columns"),
                                         OptionalSize("packed_row"), OptionalSize("drawn_row")};

constexpr FlowOperand kIn[] = {{"ABCD"}, {""}};
constexpr FlowOutput kOut[] = {{"ABCD", {Factors({0})}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

}  // namespace

const OpRule kStochasticRoundRule = {.kind = OpKind::kElementwise,
                                     .attributes = kAttributes,
                                     .infer = Infer,
                                     .flow = &kFlow,
                                     .cost = DrawsCost,
                                     .random = true,
                                     .measured_as = Op::kDropout};

}  // namespace temper
