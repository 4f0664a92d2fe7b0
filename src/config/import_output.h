// Import: what a run reports, keeps and goes on from: rules of the table of foreign names (config/foreign_names.h) for
// one setting each.
#pragma once

#include "config/option_set.h"
#include "config/translation.h"

namespace temper {

void TakeReport(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeBestMetric(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeTokenAccuracy(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeResume(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeOverwrite(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);

}  // namespace temper
