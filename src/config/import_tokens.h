// Import: tokens that a recipe adds to the vocabulary, or gives a part to: rules of the table of foreign names
// (config/foreign_names.h) for one setting each.
#pragma once

#include "config/translation.h"

namespace temper {

// {eos_token: <|im_end|>}, [<|im_start|>], "<|im_end|>". Those that the model has need no setting: the chat template
// writes them.
void TakeTokens(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);
void TakeNewTokens(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);  // "<a>,<b>"
// A YAML file with a token a key, LLaMA-Factory's.
void TakeFileOfTokens(Translation& run, const ForeignSetting& setting, const ForeignName& foreign);

}  // namespace temper
