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
    return InvalidArgument(fmt::format("metric_for_best_model: evaluations of task {} report no {}: give one of {}",
                                       config.objective.rule->name, config.output.metric_for_best_model,
                                       fmt::join(names, ", ")));
  }
  BestMetric metric{.name = std::string(name), .greater_is_better = true};
  for (const ReportSpec& report : config.resolved_rule().reports) {
    if (report.name == name) metric.greater_is_better = report.greater_is_better;
  }
  if (config.output.greater_is_better != MetricOrder::kByName) {
    metric.greater_is_better = config.output.greater_is_better == MetricOrder::kGreater;
  }
  return metric;
}

}  // namespace temper
