// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon; torch.optim.Muon): the step of a matrix is its momentum
// with all singular values near 1, by five steps of a Newton-Schulz iteration. Its arithmetic:
// backend/cpu/pointwise/muon_step.h.
#include "graph/ops/muon_workspace.h"
#include "graph/ops/operand_types.h"
#include "graph/ops/rules.h"
#include "graph/ops/update.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  constexpr char kWanted[] = "(matrix, g, momentum, clip f32[2], scalars), dtype of a weight";
  if (in.empty() || !IsMatrix(in[0])) return BadOperands(Op::kMuon, kWanted, in, a);
  return InferUpdate(Op::kMuon, kWanted, in, a);
}

// Per step: the products of the shorter sides, their square, and the next matrix.
constexpr double kSteps = 5;
Cost CostOfUpdate(const Types& in, const Types& out, const Attributes&) {
  const MuonWorkspace of(in[0].shape);
  const auto side = static_cast<double>(of.side), inner = static_cast<double>(of.inner);
  Cost cost = ElementwiseCost(in, out, 12);
  cost.flops += Flops{kSteps * (2 * 2 * side * side * inner + 2 * side * side * side)};
  return cost;
}
ProductDims DimsOf(const Types& in) {
  const MuonWorkspace of(in[0].shape);
  return {.rows = of.rows, .columns = of.columns, .inner = of.side};
}
Bytes Workspace(const Types& in, const Types&, const Attributes&, int threads) {
  const MuonWorkspace of(in[0].shape);
  return of.product + of.OfProducts(threads);
}

constexpr AttributeSpec kAttributes[] = {Double("momentum"),         Flag("nesterov"), Flag("match_rms_adamw"),
                                         Double("weight_decay"),     Flag("weight"),   OptionalString("dtype"),
                                         OptionalDouble("lr_factor")};

// An element depends on the whole matrix: lower case, no rank has a part of it.
constexpr FlowOperand kIn[] = {{"ab"}, {"ab"}, {"ab"}, {""}, {""}};
constexpr FlowOutput kOut[] = {{"ab", {Factors({0, 1, 2, 3, 4})}},
                               {"ab", {Factors({0, 1, 2, 3, 4})}},
                               {"ab", {Factors({0, 1, 2, 3, 4})}, "weight"}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr UpdateState kStates[] = {{.name = "muon_m"}};

using Range = UpdateSetting::Range;
// PyTorch's defaults.
constexpr UpdateSetting kSettings[] = {
    {"muon_momentum", "momentum", 0.95, Range::kFraction, "decay of the mean of gradients"},
    {"muon_nesterov", "nesterov", 1, Range::kFlag, "Nesterov momentum"},
    {"muon_match_rms_adamw", "match_rms_adamw", 0, Range::kFlag,
     "steps as large as AdamW's, so that its learning rates fit: times 0.2 sqrt(max(rows, columns)), not "
     "sqrt(max(1, rows / columns))"},
};

bool Takes(const UpdatedValue& value) {
  return value.shape.rank() == 2 && value.in_block && !value.is_table;
}

constexpr UpdateRule kUpdate = {
    .name = "muon",
    .op = Op::kMuon,
    .states = kStates,
    .settings = kSettings,
    .help =
        "by momentum made orthogonal, for the matrices of blocks; all other values are adamw's, with its settings. One "
        "state where adamw keeps two; a mesh must leave these matrices whole (dp, pp)",
    .decay_help = "decoupled",
    .takes = Takes,
    .rest = Op::kAdamw,
};

}  // namespace

const OpRule kMuonRule = {.kind = OpKind::kProduct,
                          .attributes = kAttributes,
                          .infer = Infer,
                          .flow = &kFlow,
                          .cost = CostOfUpdate,
                          .workspace = Workspace,
                          .overwrites = UpdateOverwrites,
                          .product = DimsOf,
                          .update = &kUpdate,
                          .measured_as = Op::kLinear};

}  // namespace temper
