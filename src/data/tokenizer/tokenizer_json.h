// Reads tokenizer.json, the file of the tokenizers library, into the parts of a Pipeline.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pipeline.h"
#include "data/tokenizer/special_tokens.h"
#include "format/json.h"

namespace temper {

// The largest known file (Gemma 3: 262,144 tokens) has 33 MB. Parsing takes a multiple of this in memory.
inline constexpr Bytes kMaxTokenizerJson = MiB(64);

// The steps, {"normalizer": ..., "pre_tokenizer": ...}, that count instead of the file's; nullopt: the file's. A
// LlamaTokenizer whose file finds special tokens only behind a space ("normalized", with "▁" put in front of a text)
// would split "end.</s>"; transformers gives this class steps that do not.
Result<std::optional<Json>> StepsOfClass(const Json& tokenizer_json, const SpecialTokens& special,
                                         const std::string& where);

// Like transformers, adds from `special` the tokens that only tokenizer_config.json has, and its add_bos_token /
// add_eos_token. `where` names the file in errors.
Result<PipelineParts> ParseTokenizerJson(std::string_view text, const SpecialTokens& special, const std::string& where);

// "BPE", "Unigram", "WordPiece", or another one that ParseTokenizerJson refuses.
Result<std::string> ModelTypeOf(const Json& tokenizer_json, const std::string& where);

// The merges of a tokenizer.json's "model", which the result's views are of.
Result<std::vector<Bpe::Merge>> MergesFromJson(const Json& model, const std::string& where);

}  // namespace temper
