// PairLoss: what the methods that learn from two answers to one prompt share: the parts of their samples, their columns
// and reports, and the tails of their graphs, around one op (preference).
#pragma once

#include <array>
#include <string_view>

#include "objective/objective.h"

namespace temper {

inline constexpr std::array<std::string_view, 2> kPairParts = {"chosen", "rejected"};

// Of the op, by their names in a Program: those of every pair, what `nll` adds, then what `odds` adds.
inline constexpr std::array<const char*, 9> kPairOutputs = {
    "weight_of_pair", "loss", "chosen", "rejected", "accuracy", "margin", "nll", "log_odds_ratio", "log_odds"};

// In the order of the outputs; names as in TRL. The first five are of all methods, the sixth is that of `nll`.
inline constexpr std::array<ReportSpec, 8> kPairReports = {{{"loss", kPairOutputs[1]},
                                                            {"rewards/chosen", kPairOutputs[2]},
                                                            {"rewards/rejected", kPairOutputs[3]},
                                                            {"rewards/accuracies", kPairOutputs[4]},
                                                            {"rewards/margins", kPairOutputs[5]},
                                                            {"nll_loss", kPairOutputs[6]},
                                                            {"log_odds_ratio", kPairOutputs[7]},
                                                            {"log_odds_chosen", kPairOutputs[8]}}};

struct PairLoss {
  Attributes attributes;  // of the op: kind, beta and others of the kind
  // Of the cross-entropy of the chosen answers, a mean over their tokens (ObjectiveRule::nll says which); 0: without
  // it.
  double nll_weight = 0;
};

// `trains`: with the root whose gradient is that of the loss, a cross-entropy with the op's weights.
void AddPairLoss(const Tail& tail, PairLoss loss, bool trains);

}  // namespace temper
