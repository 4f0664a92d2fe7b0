// AdamW: Loshchilov & Hutter 2019 in torch.optim.AdamW's order; fma, sqrt and division only
// (backend/cpu/pointwise/adamw_step.h).
#include <cmath>

#include "graph/ops/adam.h"
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/update.h"

namespace temper {

using Range = UpdateSetting::Range;
const UpdateSetting kAdamSettings[3] = {
    {"adam_beta1", "beta1", 0.9, Range::kFraction, "decay of the first moment"},
    {"adam_beta2", "beta2", 0.999, Range::kFraction, "decay of the second moment"},
    {"adam_epsilon", "eps", 1e-8, Range::kPositive, "added to the square root of the second moment"},
};

void FillAdamScalars(const Attributes& settings, int64_t step, std::span<double> scalars) {
  const auto t = static_cast<double>(step);
  scalars[kScalarBiasCorrection1] = 1 - std::pow(settings.Double("beta1"), t);
  scalars[kScalarBiasCorrection2] = 1 - std::pow(settings.Double("beta2"), t);
}

namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  return InferUpdate(Op::kAdamw, "(master, g, m, v, clip f32[2], scalars), dtype of a weight", in, a);
}
Cost CostOfUpdate(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 14);
}

constexpr AttributeSpec kAttributes[] = {Double("beta1"),
                                         Double("beta2"),
                                         Double("eps"),
                                         Double("weight_decay"),
                                         Flag("weight"),
                                         OptionalString("dtype"),
                                         OptionalDouble("lr_factor")};

constexpr FlowOperand kIn[] = {{"ABCD"}, {"ABCD"}, {"ABCD"}, {"ABCD"}, {""}, {""}};
constexpr FlowOutput kOut[] = {{"ABCD", {Factors({0, 1, 2, 3, 4, 5})}},
                               {"ABCD", {Factors({0, 1, 2, 3, 4, 5})}},
                               {"ABCD", {Factors({0, 1, 2, 3, 4, 5})}},
                               {"ABCD", {Factors({0, 1, 2, 3, 4, 5})}, "weight"}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr UpdateState kStates[] = {{.name = "adam_m"}, {.name = "adam_v"}};

constexpr UpdateRule kUpdate = {.name = "adamw",
                                .op = Op::kAdamw,
                                .states = kStates,
                                .settings = kAdamSettings,
                                .decay_help = "decoupled",
                                .other_names =
                                    "adamw_torch adamw_torch_fused adamw_hf adamw_apex_fused "
                                    "adamw_torch_xla adamw_torch_npu_fused",
                                .other_variants =
                                    "adamw_torch_4bit ao_adamw_4bit ao_adamw_fp8 paged_adamw_32bit paged_adamw "
                                    "adamw_anyprecision flash_adamw",
                                .fill_scalars = FillAdamScalars};

std::vector<MeasuredCase> Measured(DType dtype) {
  if (dtype != DType::kF32) return {};
  Attributes attributes = kUpdate.Settings();
  attributes.Set("weight_decay", 0.0);
  attributes.Set("weight", int64_t{0});
  return MeasuredAtExtents(dtype, attributes, [](const TensorType& x) {
    return Types{x, x, x, x, {DType::kF32, {2}}, {DType::kF64, {kNumScalars}}};
  });
}

}  // namespace

const OpRule kAdamwRule = {.kind = OpKind::kElementwise,
                           .attributes = kAttributes,
                           .infer = Infer,
                           .flow = &kFlow,
                           .cost = CostOfUpdate,
                           .overwrites = UpdateOverwrites,
                           .update = &kUpdate,
                           .measured = Measured};

}  // namespace temper
