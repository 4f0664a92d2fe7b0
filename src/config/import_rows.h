// Import: what a row and a step of the run hold, compared with the tool's: packing and padding, rows that are too long,
// and how many processes share a step.
#pragma once

#include "config/option_set.h"
#include "config/translation.h"

namespace temper {

// Rules of the table of foreign names: settings that are read when all others are known.
void TakePadding(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakePackedEvaluation(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeExcessLength(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeProcesses(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeShardedRanks(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);

// After all settings and defaults.
void TranslatePacking(Translation& run);
void TranslateLongRows(Translation& run);
void CompareSteps(Translation& run);  // with the other tool's: ranks

}  // namespace temper
