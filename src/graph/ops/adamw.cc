// AdamW: Loshchilov & Hutter 2019 in torch.optim.AdamW's order; fma, sqrt and division only
// (backend/cpu/adamw_step.h).
#include <cmath>

#include "graph/ops/measured.h"
#include "graph/ops/update.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  return InferUpdate(kAdamwUpdate, "(master, g, m, v, clip f32[2], scalars), dtype of a weight", in, a);
}
Cost CostOfUpdate(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 14);
}

// The corrections are made up for here: double precision and pow on the host, once a step.
void FillScalars(const Attributes& settings, int64_t step, std::span<double> scalars) {
  const auto t = static_cast<double>(step);
  scalars[kScalarBiasCorrection1] = 1 - std::pow(settings.Double("beta1"), t);
  scalars[kScalarBiasCorrection2] = 1 - std::pow(settings.Double("beta2"), t);
}

constexpr AttributeSpec kAttributes[] = {Double("beta1"),        Double("beta2"), Double("eps"),
                                         Double("weight_decay"), Flag("weight"),  OptionalString("dtype")};

constexpr FlowOperand kIn[] = {{"AB"}, {"AB"}, {"AB"}, {"AB"}, {""}, {""}};
constexpr FlowOutput kOut[] = {{"AB", {Factors({0, 1, 2, 3, 4, 5})}},
                               {"AB", {Factors({0, 1, 2, 3, 4, 5})}},
                               {"AB", {Factors({0, 1, 2, 3, 4, 5})}},
                               {"AB", {Factors({0, 1, 2, 3, 4, 5})}, "weight"}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr UpdateState kStates[] = {{.name = "adam_m"}, {.name = "adam_v"}};

std::vector<MeasuredCase> Measured(DType dtype) {
  if (dtype != DType::kF32) return {};
  Attributes attributes = AdamwSettings();
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
                           .measured = Measured};

constinit const UpdateRule kAdamwUpdate = {
    .name = "adamw", .op = Op::kAdamw, .states = kStates, .fill_scalars = FillScalars};

Attributes AdamwSettings(double beta1, double beta2, double eps) {
  return {{"beta1", beta1}, {"beta2", beta2}, {"eps", eps}};
}

}  // namespace temper
