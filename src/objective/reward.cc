// Reward models: a head of one row, whose number at an answer's last token is to be greater for the chosen answer of a
// pair than for the rejected one (Ouyang 2022), as TRL's RewardTrainer learns it.
#include <array>

#include "graph/named_ops.h"
#include "objective/objective.h"

namespace temper {
namespace {

constexpr std::array<std::string_view, 2> kRewardParts = {"chosen", "rejected"};
constexpr std::array kRewardColumns = {kDocumentStartColumn, kSampleStartColumn, kMarginColumn};
constexpr std::array<ReportSpec, 5> kRewardReports = {{{"loss", "loss", false},
                                                       {"rewards/chosen", "chosen"},
                                                       {"rewards/rejected", "rejected", false},
                                                       {"accuracy", "accuracy"},
                                                       {"margin", "margin_of_pair"}}};

void AddPairs(const Tail& tail) {
  const ValueId reward = tail.f.Linear(tail.x_TD, tail.w_VD, kNoValue, "reward");
  Attributes attributes;
  const double center = tail.settings.tasks.reward.center_rewards_coefficient;
  if (center != 0) attributes.Set("center", center);
  const std::vector<ValueId> outputs = tail.f.Add(
      Op::kRewardLoss,
      {reward, tail.Column(kDocumentStartColumn), tail.Column(kSampleStartColumn), tail.Column(kMarginColumn)},
      std::move(attributes), kRewardReports[0].output);
  for (size_t k = 0; k < outputs.size(); ++k) {
    Value& value = tail.f.graph().value(outputs[k]);
    value.name = kRewardReports[k].output;
    value.role = Role::kOutput;
  }
}

void AddRewards(const Tail& tail) {
  tail.Logits(Role::kOutput);
}

constexpr std::array<ObjectiveGraph, 2> kRewardGraphs = {
    {{ProgramKind::kTrain, AddPairs}, {ProgramKind::kEval, AddPairs}}};

}  // namespace

const ObjectiveRule& Reward() {
  static constexpr ObjectiveRule kRule{.name = "reward",
                                       .help = "a number that is greater for the chosen of two answers",
                                       .head = ObjectiveRule::Head::kReward,
                                       .rows = RowUse::kRanked,
                                       .parts = kRewardParts,
                                       .columns = kRewardColumns,
                                       .graphs = kRewardGraphs,
                                       .score = AddRewards,
                                       .mean = ObjectiveRule::Mean::kSamples,
                                       .reports = kRewardReports};
  return kRule;
}

}  // namespace temper
