// Which of llama.cpp's pre-tokenizers cuts a text as a tokenizer.json does. GGUF files hold no expressions: they name
// one of those that are built into llama.cpp, which has adapted them to its own engine. Source: llama.cpp,
// src/llama-vocab.cpp, llm_tokenizer_bpe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace temper {

struct GgufPreTokenizer {
  std::string name;             // tokenizer.ggml.pre
  bool ignores_merges = false;  // a word that is a token is that token (BpeOptions::ignore_merges)
};

// Those that cut alike, which differ in ignores_merges. kUnsupported, with the steps, if llama.cpp has none. `where`
// names the file in errors. REQUIRES: `pre_tokenizer` is valid (PreTokenizer::FromJson).
Result<std::vector<GgufPreTokenizer>> FindGgufPreTokenizers(const Json& pre_tokenizer, const std::string& where);

// The other way round: the steps that one of llama.cpp's names stands for, also its other names of the same.
struct GgufSteps {
  Json normalizer, pre_tokenizer;  // as tokenizer.json has them
  bool ignores_merges = false;
  bool adds_bos = false;  // where the file does not say
};
// kUnsupported: a name that is not known, said with `where`.
Result<GgufSteps> StepsOfGguf(std::string_view name, const std::string& where);

}  // namespace temper
