// The moving average of a weight (Polyak and Juditsky 1992), as torch.optim.swa_utils' get_ema_multi_avg_fn makes it:
// an update whose master is the average and whose gradient is the weight that the step has just made; its share of the
// average, 1 in the first step, stands where optimizers have their scalars. Its arithmetic:
// backend/cpu/pointwise/average_step.h.
#include "graph/ops/operand_types.h"
#include "graph/ops/rules.h"
#include "graph/ops/update.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  constexpr char kWanted[] = "(average, weight f32, clip f32[2], share f64[1])";
  const bool good = in.size() == 4 && in[0].dtype == DType::kF32 && in[1] == in[0] &&
                    in[2] == TensorType{DType::kF32, {2}} && in[3] == TensorType{DType::kF64, {1}};
  return good ? Result<Types>(Types{in[0]}) : BadOperands(Op::kAverage, kWanted, in, a);
}
Cost CostOfUpdate(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 3);
}

constexpr FlowOperand kIn[] = {{"ABCD"}, {"ABCD"}, {""}, {""}};
constexpr FlowOutput kOut[] = {{"ABCD", {Factors({0, 1, 2, 3})}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr UpdateRule kUpdate = {.name = "average", .op = Op::kAverage, .averages = true};

}  // namespace

// Bound by what it moves, as AdamW is.
const OpRule kAverageRule = {.kind = OpKind::kElementwise,
                             .infer = Infer,
                             .flow = &kFlow,
                             .cost = CostOfUpdate,
                             .overwrites = UpdateOverwrites,
                             .update = &kUpdate,
                             .measured_as = Op::kAdamw};

}  // namespace temper
