// The option that takes rows of tables of words, as PEFT's trainable_token_indices:
//   lora.trainable_token_indices: [5, 7]   or   {embed_tokens: [5, 7], lm_head: [5, 7]}
//   --lora.trainable_token_indices 5,7-9
#pragma once

#include "config/option.h"
#include "format/lora_config.h"

namespace temper {

Option TokenRowsOption(LoraConfig::TokenIndices& indices);

}  // namespace temper
