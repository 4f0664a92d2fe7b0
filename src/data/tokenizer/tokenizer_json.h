// Reads tokenizer.json, the file of the tokenizers library, into the parts of a Pipeline.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "data/tokenizer/pipeline.h"
#include "data/tokenizer/special_tokens.h"

namespace temper {

// The largest known file (Gemma 3: 262,144 tokens) has 33 MB. Parsing takes a multiple of this in memory.
inline constexpr Bytes kMaxTokenizerJson = MiB(64);

// Like transformers, adds from `special` the tokens that only tokenizer_config.json has, and its add_bos_token /
// add_eos_token. `where` names the file in errors.
Result<PipelineParts> ParseTokenizerJson(std::string_view text, const SpecialTokens& special, const std::string& where);

}  // namespace temper
