// Reads vocab.json + merges.txt, the files of GPT-2's tokenizer (also OPT's, Qwen2's), into the parts of a Pipeline.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "data/tokenizer/pipeline.h"
#include "data/tokenizer/special_tokens.h"

namespace temper {

// The texts of the two files. special.tokenizer_class, else special.model_type, decides the kind. Fills in roles (bos,
// eos, ...) of `special` that no file states with the class's defaults. `where` names the folder in errors.
Result<PipelineParts> ParseVocabAndMerges(std::string_view vocab, std::string_view merges, SpecialTokens& special,
                                          const std::string& where);

}  // namespace temper
