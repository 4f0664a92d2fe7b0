#include "settings/best_metric.h"

#include <fmt/format.h>

#include <algorithm>

namespace temper {

std::vector<std::string_view> EvaluationReports(const ObjectiveRule& rule) {
  std::vector<std::string_view> names;
  for (const ReportSpec& report : rule.reports) names.push_back(report.name);
  names.insert(names.end(), rule.evaluation_reports.begin(), rule.evaluation_reports.end());
  return names;
}

Result<BestMetric> BestMetricOf(const RunConfig& config) {
  std::string_view name = config.output.metric_for_best_model;
  if (name.starts_with("eval_")) name.remove_prefix(5);
  const std::vector<std::string_view> names = EvaluationReports(config.resolved_rule());
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const ObjectiveRule* const more = config.objective.rule->with_accuracy;
    const auto has_it = [&](const ReportSpec& report) { return report.name == name; };
    if (more != nullptr && std::any_of(more->reports.begin(), more->reports.end(), has_it)) {
      return InvalidArgument(fmt::format(
          "metric_for_best_model: evaluations report {} only where they are asked to: set token_accuracy: true", name));
    }
    return InvalidArgument(fmt::format("metric_for_best_model: evaluations of task {} report no '{}': give one of {}",
                                       config.objective.rule->name, config.output.metric_for_best_model,
                                       fmt::join(names, ", ")));
  }
  BestMetric metric{.name = std::string(name), .greater_is_better = true};
  for (const ReportSpec& report : config.resolved_rule().reports) {
    if (report.name == name) metric.greater_is_better = report.greater_is_better;
  }
  if (metric.name == "loss" && config.output.greater_is_better == MetricOrder::kGreater) {
    return InvalidArgument(
        "greater_is_better: true would keep the checkpoint with the highest loss: remove it, or name another "
        "metric_for_best_model");
  }
  if (config.output.greater_is_better != MetricOrder::kByName) {
    metric.greater_is_better = config.output.greater_is_better == MetricOrder::kGreater;
  }
  return metric;
}

}  // namespace temper
