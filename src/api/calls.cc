// The calls of temper.h that need no more than the call.
#include "api/temper.h"

#include "api/door.h"
#include "api/evaluation.h"
#include "api/plan_run.h"
#include "api/settings.h"
#include "api/train.h"

namespace temper {

Result<TrainResult> Train(const Settings& settings, Observer* observer, std::stop_token stop) {
  ObserverLog log(observer);
  return ThroughDoor(log, [&]() -> Result<TrainResult> {
    TEMPER_ASSIGN_OR_RETURN(RunRequest request, RunOfSettings(settings, Purpose::kTrain));
    StopByToken control(std::move(stop));
    const Ranks alone;
    return TrainOnRanks(std::move(request), alone,
                        {.stop = control, .events = &log, .saved = [&](const std::string& folder, int64_t step) {
                           log.Saved(folder, step);
                         }});
  });
}

Result<PlanResult> Plan(const Settings& settings, Observer* observer) {
  ObserverLog log(observer);
  return ThroughDoor(log, [&]() -> Result<PlanResult> {
    PlanOptions options;
    TEMPER_ASSIGN_OR_RETURN(RunRequest request, RunOfSettings(settings, Purpose::kPlan, {options.Group()}));
    return PlanRun(std::move(request), options, {});
  });
}

Result<EvaluationMetrics> Evaluate(const Settings& settings, Observer* observer, std::stop_token stop) {
  ObserverLog log(observer);
  return ThroughDoor(log, [&]() -> Result<EvaluationMetrics> {
    EvaluationSettings options;
    TEMPER_RETURN_IF_ERROR(ReadSettings(settings, options.Groups()));
    if (options.model.choice.model.empty()) return InvalidArgument("settings: model is required");
    if (options.data.empty()) return InvalidArgument("settings: data is required");
    TEMPER_ASSIGN_OR_RETURN(const Evaluation evaluation,
                            RunEvaluation(std::move(options), [&stop] { return stop.stop_requested(); }));
    const EvaluationReport& report = evaluation.report;
    EvaluationMetrics metrics{
        .loss = report.loss, .tokens = report.tokens, .samples = evaluation.samples, .seconds = report.time.v};
    for (const NamedNumber& number : evaluation.reports) metrics.reports.emplace_back(number.name, number.value);
    log.Evaluated(metrics);
    return metrics;
  });
}

}  // namespace temper
