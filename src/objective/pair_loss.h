// pair_loss: what the methods that learn from two answers to one prompt share: the parts of their samples, their
// columns and reports, and the tails of their graphs, around one op (preference).
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "objective/objective.h"

namespace temper {

inline constexpr std::array<std::string_view, 2> kPairParts = {"chosen", "rejected"};

// Of the op, by their names in a Program: those of every pair, what `nll` adds, then what `odds` adds.
inline constexpr std::array<const char*, 9> kPairOutputs = {
    "weight_of_pair", "loss", "chosen", "rejected", "accuracy", "margin", "nll", "log_odds_ratio", "log_odds"};

// In the order of the outputs; names as in TRL. The first five are of all methods, the sixth is that of `nll`.
inline constexpr std::array<ReportSpec, 8> kPairReports = {{{"loss", kPairOutputs[1], false},
                                                            {"rewards/chosen", kPairOutputs[2]},
                                                            {"rewards/rejected", kPairOutputs[3], false},
                                                            {"rewards/accuracies", kPairOutputs[4]},
                                                            {"rewards/margins", kPairOutputs[5]},
                                                            {"nll_loss", kPairOutputs[6], false},
                                                            {"log_odds_ratio", kPairOutputs[7]},
                                                            {"log_odds_chosen", kPairOutputs[8]}}};

inline constexpr std::array kPairColumns = {kTargetColumn, kReferenceColumn, kDocumentStartColumn, kSampleStartColumn,
                                            kNllScaleColumn};

// A rule with what all methods of pairs have alike.
constexpr ObjectiveRule PairRule(ObjectiveRule rule) {
  rule.rows = RowUse::kPairs;
  rule.parts = kPairParts;
  if (rule.columns.empty()) rule.columns = kPairColumns;
  rule.mean = ObjectiveRule::Mean::kSamples;
  rule.prefers = true;
  if (rule.reports.empty()) rule.reports = std::span(kPairReports).first(5);
  return rule;
}

// That rule where a setting adds a cross-entropy of the chosen answers.
constexpr ObjectiveRule PairRuleWithNll(ObjectiveRule rule) {
  rule = PairRule(rule);
  rule.nll = ObjectiveRule::Nll::kAnswer;
  rule.reports = std::span(kPairReports).first(6);
  return rule;
}

// `kind`: of the op; its numbers come from the rule's own settings. `trains`: with the root whose gradient is that of
// the loss, a cross-entropy with the op's weights. REQUIRES: the rule has pair_settings.
void AddPairLoss(const Tail& tail, PreferenceKind kind, bool trains);

}  // namespace temper
