// Option names of transformers, TRL, PEFT, Axolotl, LLaMA-Factory, Unsloth and torchtune: what each is called here, or
// why it has no option. One table for two readers: the advice on an unknown name (OptionSet::Advice) and
// `temper import` (config/import.h).
#pragma once

#include <string_view>
#include <vector>

#include "config/option_set.h"

namespace temper {

const std::vector<ForeignName>& ForeignNames();

}  // namespace temper
