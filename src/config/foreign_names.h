// Option names of transformers, TRL, PEFT, Axolotl, LLaMA-Factory, Unsloth and torchtune, and the advice for each.
#pragma once

#include <vector>

#include "config/option_set.h"

namespace temper {

std::vector<ForeignName> ForeignNames();

}  // namespace temper
