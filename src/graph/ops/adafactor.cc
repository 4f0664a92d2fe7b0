// Adafactor (Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost") as transformers
// has it, with the learning rate of the schedule: of a matrix it keeps a number for each row and column where AdamW
// keeps two for each element. Its arithmetic: backend/cpu/pointwise/adafactor_step.h.
#include <cmath>

#include "graph/ops/adafactor_workspace.h"
#include "graph/ops/operand_types.h"
#include "graph/ops/rules.h"
#include "graph/ops/update.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  constexpr char kWanted[] =
      "(master, g, row and column of a matrix or v of a vector, clip f32[2], scalars), dtype of a weight";
  const bool factored = !in.empty() && in[0].shape.rank() >= 2;
  if (in.empty() || a.Flag("factored") != factored || a.Flag("vector") == factored) {
    return BadOperands(Op::kAdafactor, kWanted, in, a);
  }
  return InferUpdate(Op::kAdafactor, kWanted, in, a);
}

// Reads the gradient three times: for its squares, for the size of the step, for the step.
Cost CostOfUpdate(const Types& in, const Types& out, const Attributes&) {
  Cost cost = ElementwiseCost(in, out, 12);
  cost.read += in[UpdateOperands::kGradient].bytes() * 2;
  return cost;
}
Bytes Workspace(const Types& in, const Types&, const Attributes&, int) {
  return AdafactorWorkspace(in[0].shape).total;
}

constexpr AttributeSpec kAttributes[] = {Double("eps"),           Double("clip_threshold"),
                                         Double("decay_rate"),    Flag("scale_parameter"),
                                         Flag("factored"),        Flag("vector"),
                                         Double("weight_decay"),  Flag("weight"),
                                         OptionalString("dtype"), OptionalDouble("lr_factor")};

// An element depends on all others: lower case, no rank has a part of it.
constexpr FlowOperand kIn[] = {{"abcde"},
                               {"abcde"},
                               {.dims = "abcd", .flag = "factored"},
                               {.dims = "abce", .flag = "factored"},
                               {.dims = "e", .flag = "vector"},
                               {""},
                               {""}};
constexpr std::array<uint16_t, 4> kAll = {Factors({0, 1, 2, 3, 4, 5, 6})};
constexpr FlowOutput kOut[] = {{"abcde", kAll},
                               {"abcd", kAll, "factored"},
                               {"abce", kAll, "factored"},
                               {"e", kAll, "vector"},
                               {"abcde", kAll, "weight"}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr UpdateState kStates[] = {
    {.name = "adafactor_row", .flag = "factored", .of = UpdateState::Of::kRow},
    {.name = "adafactor_column", .flag = "factored", .of = UpdateState::Of::kColumn},
    {.name = "adafactor_v", .flag = "vector"},
};

using Range = UpdateSetting::Range;
// transformers' defaults, but for scale_parameter, which its Trainer switches off, too.
constexpr UpdateSetting kSettings[] = {
    {"adafactor_eps", "eps", 1e-30, Range::kPositive, "added to squares of gradients"},
    {"adafactor_clip_threshold", "clip_threshold", 1, Range::kPositive,
     "largest root of the mean square of a value's step, before the learning rate"},
    {"adafactor_decay_rate", "decay_rate", -0.8, Range::kNegative,
     "the mean of squared gradients decays by 1 - t^this in step t"},
    {"adafactor_scale_parameter", "scale_parameter", 0, Range::kFlag,
     "multiply the learning rate by the root of the mean square of the value, at least 0.001"},
};

constexpr UpdateRule kUpdate = {
    .name = "adafactor",
    .op = Op::kAdafactor,
    .states = kStates,
    .settings = kSettings,
    .help =
        "by a number for each row and column of a matrix where adamw keeps two for each element; a mesh must leave "
        "values whole (dp, pp, cp)",
    .decay_help = "decoupled",
    .derive_of_shape =
        [](Attributes& a, const Shape& value) {
          a.Set("factored", int64_t{value.rank() >= 2});
          a.Set("vector", int64_t{value.rank() < 2});
        },
    .fill_scalars =
        [](const Attributes& settings, int64_t step, std::span<double> scalars) {
          scalars[kScalarBiasCorrection2] = std::pow(static_cast<double>(step), settings.Double("decay_rate"));
        },
};

}  // namespace

// Passes over memory, two of three of which add up squares.
const OpRule kAdafactorRule = {.kind = OpKind::kMemory,
                               .attributes = kAttributes,
                               .infer = Infer,
                               .flow = &kFlow,
                               .cost = CostOfUpdate,
                               .workspace = Workspace,
                               .overwrites = UpdateOverwrites,
                               .update = &kUpdate,
                               .measured_as = Op::kSumSquares};

}  // namespace temper
