// SGD with momentum as torch.optim.SGD: no dampening, weight decay added to the gradient. Without momentum it has no
// state. Its arithmetic: backend/cpu/sgd_step.h.
#include "graph/ops/update.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  constexpr char kWanted[] = "(master, g, [momentum], clip f32[2], scalars), dtype of a weight";
  const double momentum = a.Double("momentum");
  const bool good = a.Flag("buffer") == (momentum != 0) && (momentum != 0 || !a.Flag("nesterov"));
  if (!good) return BadOperands(Op::kSgd, kWanted, in, a);
  return InferUpdate(kSgdUpdate, kWanted, in, a);
}
// Clipping, decay, momentum, Nesterov's look ahead and the step.
Cost CostOfUpdate(const Types& in, const Types& out, const Attributes& a) {
  return ElementwiseCost(in, out, 5.0 + 2 * a.Flag("buffer") + 2 * a.Flag("nesterov"));
}

constexpr AttributeSpec kAttributes[] = {Double("momentum"),     Flag("nesterov"), Flag("buffer"),
                                         Double("weight_decay"), Flag("weight"),   OptionalString("dtype")};

constexpr FlowOperand kIn[] = {
    {"AB"}, {"AB"}, {.dims = "AB", .flag = "buffer"}, {""}, {""},
};
constexpr FlowOutput kOut[] = {{"AB", {Factors({0, 1, 2, 3, 4})}},
                               {"AB", {Factors({0, 1, 2, 3, 4})}, "buffer"},
                               {"AB", {Factors({0, 1, 2, 3, 4})}, "weight"}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr UpdateState kStates[] = {{.name = "sgd_momentum", .flag = "buffer"}};

}  // namespace

// Bound by what it moves, as AdamW is.
const OpRule kSgdRule = {.kind = OpKind::kElementwise,
                         .attributes = kAttributes,
                         .infer = Infer,
                         .flow = &kFlow,
                         .cost = CostOfUpdate,
                         .overwrites = UpdateOverwrites,
                         .measured_as = Op::kAdamw};

constinit const UpdateRule kSgdUpdate = {.name = "sgd", .op = Op::kSgd, .states = kStates};

Attributes SgdSettings(double momentum, bool nesterov) {
  return {{"momentum", momentum}, {"nesterov", int64_t{nesterov}}, {"buffer", int64_t{momentum != 0}}};
}

}  // namespace temper
