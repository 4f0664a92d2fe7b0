// Reads tiktoken's files into the parts of a Pipeline: a line "base64 rank" for each token, without the special tokens
// and the expression that cuts a text into words. These come from the model's code: Llama 3's original tokenizer.model,
// tiktoken.model of Moonlight and Kimi K2, qwen.tiktoken of Qwen 1.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/status.h"
#include "data/tokenizer/pipeline.h"
#include "data/tokenizer/special_tokens.h"
#include "format/json.h"

namespace temper {

bool LooksLikeTiktoken(std::string_view text);

// The path of the folder's file of ranks, if it has one of the names above but tokenizer.model, which may be a
// SentencePiece model.
std::optional<std::string> FindTiktokenFile(Env& env, const std::string& folder);

struct TiktokenFiles {
  PipelineParts parts;
  Json normalizer, pre_tokenizer;  // as tokenizer.json would have them
  std::string merges;              // as merges.txt would have them: each pair of tokens that makes a token
};

// `text`: of the file at `path`, whose name decides the model unless special.tokenizer_class does. Special tokens that
// no file of the folder names get the names of the model's code. Fills in the roles (bos, eos, ...) of `special` that
// no file states.
Result<TiktokenFiles> ParseTiktoken(std::string_view text, SpecialTokens& special, const std::string& path);

}  // namespace temper
