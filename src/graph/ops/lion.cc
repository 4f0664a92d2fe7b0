// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1): every element moves by the
// learning rate, in the direction of a mean of gradients. One state, half of AdamW's. Its arithmetic:
// backend/cpu/pointwise/lion_step.h.
#include "graph/ops/rules.h"
#include "graph/ops/update.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  return InferUpdate(Op::kLion, "(master, g, m, clip f32[2], scalars), dtype of a weight", in, a);
}
Cost CostOfUpdate(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 9);
}

constexpr AttributeSpec kAttributes[] = {Double("beta1"), Double("beta2"),         Double("weight_decay"),
                                         Flag("weight"),  OptionalString("dtype"), OptionalDouble("lr_factor")};

constexpr FlowOperand kIn[] = {{"ABCD"}, {"ABCD"}, {"ABCD"}, {""}, {""}};
constexpr FlowOutput kOut[] = {{"ABCD", {Factors({0, 1, 2, 3, 4})}},
                               {"ABCD", {Factors({0, 1, 2, 3, 4})}},
                               {"ABCD", {Factors({0, 1, 2, 3, 4})}, "weight"}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr UpdateState kStates[] = {{.name = "lion_m"}};

using Range = UpdateSetting::Range;
// The paper's defaults, and bitsandbytes'.
constexpr UpdateSetting kSettings[] = {
    {"lion_beta1", "beta1", 0.9, Range::kFraction, "weight of the kept mean in the direction of a step"},
    {"lion_beta2", "beta2", 0.99, Range::kFraction, "decay of the kept mean"},
};

constexpr UpdateRule kUpdate = {.name = "lion",
                                .op = Op::kLion,
                                .states = kStates,
                                .settings = kSettings,
                                .help =
                                    "by the sign of a mean of gradients; it keeps one state where adamw keeps two, and "
                                    "needs a learning rate 3 to 10 times lower",
                                .decay_help = "decoupled, as for adamw; 3 to 10 times higher where the rate is lower",
                                .other_names = "lion_32bit",
                                .other_variants = "lion_8bit paged_lion_8bit paged_lion_32bit"};

}  // namespace

// Bound by what it moves, as AdamW is.
const OpRule kLionRule = {.kind = OpKind::kElementwise,
                          .attributes = kAttributes,
                          .infer = Infer,
                          .flow = &kFlow,
                          .cost = CostOfUpdate,
                          .overwrites = UpdateOverwrites,
                          .update = &kUpdate,
                          .measured_as = Op::kAdamw};

}  // namespace temper
