// BestMetric: the number by which evaluations are compared: of the best checkpoint and of early stopping. Names are
// those of an evaluation's reports, also with "eval_" before them, as transformers' metric_for_best_model takes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "objective/objective.h"
#include "settings/run_config.h"

namespace temper {

struct BestMetric {
  std::string name = "loss";
  bool greater_is_better = false;

  bool is_loss() const { return name == "loss" && !greater_is_better; }
  bool better(double value, double than) const { return greater_is_better ? value > than : value < than; }
  std::string shown() const { return "eval_" + name; }
  bool operator==(const BestMetric&) const = default;
};

// What evaluations report. `f1_binary` is only there with two classes.
std::vector<std::string_view> EvaluationReports(const ObjectiveRule& rule);
// Error: the task's evaluations report no such number; it lists those that they do.
Result<BestMetric> BestMetricOf(const RunConfig& config);

}  // namespace temper
