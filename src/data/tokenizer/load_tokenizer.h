// Detects which tokenizer a model folder has, and loads it.
#pragma once

#include <memory>
#include <string>

#include "base/env.h"
#include "data/tokenizer/tokenizer.h"

namespace temper {

// Reads a model folder: tokenizer.json, else tokenizer.model (SentencePiece, or Llama 3's of tiktoken; also, with a
// warning, instead of a broken tokenizer.json), else spiece.model (T5), tiktoken.model (Kimi), qwen.tiktoken (Qwen 1),
// or vocab.json + merges.txt (GPT-2, OPT, Qwen2), with the special tokens of tokenizer_config.json,
// special_tokens_map.json, added_tokens.json, generation_config.json and config.json; each of these may be absent.
// Every error names the file and the remedy.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(Env& env, const std::string& folder);

}  // namespace temper
