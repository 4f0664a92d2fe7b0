// Reads vocab.json + merges.txt, the files of GPT-2's tokenizer (also OPT's, Qwen2's), into the parts of a Pipeline.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pipeline.h"
#include "data/tokenizer/special_tokens.h"
#include "format/json.h"

namespace temper {

// The texts of the two files. special.tokenizer_class, else special.model_type, decides the kind. Fills in roles (bos,
// eos, ...) of `special` that no file states with the class's defaults. `where` names the folder in errors.
Result<PipelineParts> ParseVocabAndMerges(std::string_view vocab, std::string_view merges, SpecialTokens& special,
                                          const std::string& where);

// The pre-tokenizer and the normalizer that the class has, as tokenizer.json would have them.
struct VocabAndMergesSteps {
  Json normalizer, pre_tokenizer;
};
Result<VocabAndMergesSteps> StepsOfVocabAndMerges(const SpecialTokens& special, const std::string& where);
// The merges of merges.txt, which the result's views are of.
Result<std::vector<Bpe::Merge>> ParseMerges(std::string_view text, const std::string& where);

}  // namespace temper
