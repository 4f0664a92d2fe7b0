// Import: how a run trains: what is loaded and trained, the optimizer, its schedule and when things happen. Rules of
// the table of foreign names (config/foreign_names.h) for one setting each.
#pragma once

#include "config/option_set.h"
#include "config/translation.h"

namespace temper {

void TakeLoadedDtype(Translation& run, const ForeignSetting& setting,
                     const ForeignName& foreign);  // the type in which weights are loaded
void TakeModules(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeSavedModules(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeOptimizer(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeInitLoraWeights(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeNeedless(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);  // whatever its value
void TakeUseMuon(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);   // LLaMA-Factory's
void TakeSchedule(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeScheduleKwargs(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeWarmup(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeSteps(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeMaxSteps(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakePerEpoch(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);

}  // namespace temper
