// Import: what a recipe's data is, and how its conversations are written: rules of the table of foreign names
// (config/foreign_names.h) for one setting each.
#pragma once

#include "config/option_set.h"
#include "config/translation.h"

namespace temper {

void TakeNamedData(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);    // LLaMA-Factory's
void TakeListOfData(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);   // Axolotl's
void TakeDatasetName(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);  // TRL's
void TakeSplit(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeHeldOut(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeMaxSamples(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeTextField(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);

void TakeTemplateVariable(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeNamedTemplate(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeTemplateFile(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeTokenizer(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);

// After all settings: which tokens of TRL's rows count where the recipe leaves it open, and that a run needs data.
void CompleteData(Translation& run);

}  // namespace temper
