// The calls of temper.h.
#include "api/temper.h"

#include "api/door.h"
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

}  // namespace temper
