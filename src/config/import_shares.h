// Import: shares of data sets (LLaMA-Factory's mix_strategy and interleave_probs) as passes of their files.
#pragma once

#include "config/option_set.h"
#include "config/translation.h"

namespace temper {

// Rule of the table of foreign names: read when all data is known.
void TakeShares(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);

// After all settings. Counts the rows of files that are here; where one is not, or is no JSON, the shares have no
// equivalent.
void TranslateShares(Translation& run);

}  // namespace temper
