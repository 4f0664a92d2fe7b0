// SGD with momentum as torch.optim.SGD: no dampening, weight decay added to the gradient. Without momentum it has no
// state. Its arithmetic: backend/cpu/pointwise/sgd_step.h.
#include "graph/ops/rules.h"
#include "graph/ops/update.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  constexpr char kWanted[] = "(master, g, [momentum], clip f32[2], scalars), dtype of a weight";
  const double momentum = a.Double("momentum");
  const bool good = a.Flag("buffer") == (momentum != 0) && (momentum != 0 || !a.Flag("nesterov"));
  if (!good) return BadOperands(Op::kSgd, kWanted, in, a);
  return InferUpdate(Op::kSgd, kWanted, in, a);
}
// Clipping, decay, momentum, Nesterov's look ahead and the step.
Cost CostOfUpdate(const Types& in, const Types& out, const Attributes& a) {
  return ElementwiseCost(in, out, 5.0 + 2 * a.Flag("buffer") + 2 * a.Flag("nesterov"));
}

constexpr AttributeSpec kAttributes[] = {Double("momentum"),         Flag("nesterov"), Flag("buffer"),
                                         Double("weight_decay"),     Flag("weight"),   OptionalString("dtype"),
                                         OptionalDouble("lr_factor")};

constexpr FlowOperand kIn[] = {
    {"ABCD"}, {"ABCD"}, {.dims = "ABCD", .flag = "buffer"}, {""}, {""},
};
constexpr FlowOutput kOut[] = {{"ABCD", {Factors({0, 1, 2, 3, 4})}},
                               {"ABCD", {Factors({0, 1, 2, 3, 4})}, "buffer"},
                               {"ABCD", {Factors({0, 1, 2, 3, 4})}, "weight"}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr UpdateState kStates[] = {{.name = "sgd_momentum", .flag = "buffer"}};

using Range = UpdateSetting::Range;
// PyTorch's defaults, except momentum, which is 0 there.
constexpr UpdateSetting kSettings[] = {
    {"sgd_momentum", "momentum", 0.9, Range::kFraction, "fraction of the previous step to add; 0 keeps no state"},
    {"sgd_nesterov", "nesterov", 0, Range::kFlag, "Nesterov momentum"},
};

std::string_view Conflict(const Attributes& settings) {
  if (!settings.Flag("nesterov") || settings.Double("momentum") != 0) return "";
  return "sgd_nesterov looks ahead by the momentum, and sgd_momentum is 0: set one above 0, or remove sgd_nesterov";
}

constexpr UpdateRule kUpdate = {
    .name = "sgd",
    .op = Op::kSgd,
    .states = kStates,
    .settings = kSettings,
    .help = "with momentum; it keeps fewer states and needs a higher learning rate",
    .decay_help = "added to the gradient",
    .scales_with_gradient = true,
    .derive = [](Attributes& a) { a.Set("buffer", int64_t{a.Double("momentum") != 0}); },
    .conflict = Conflict,
};

}  // namespace

// Bound by what it moves, as AdamW is.
const OpRule kSgdRule = {.kind = OpKind::kElementwise,
                         .attributes = kAttributes,
                         .infer = Infer,
                         .flow = &kFlow,
                         .cost = CostOfUpdate,
                         .overwrites = UpdateOverwrites,
                         .update = &kUpdate,
                         .measured_as = Op::kAdamw};

}  // namespace temper
