// What users of transformers, TRL, PEFT, Axolotl, LLaMA-Factory, Unsloth and torchtune may write, and the answer to it.
#pragma once

#include <vector>

#include "config/option_set.h"

namespace temper {

std::vector<ForeignName> ForeignNames();

}  // namespace temper
