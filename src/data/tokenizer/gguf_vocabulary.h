// The tokenizer of a model folder as GGUF files hold it: a list of tokens with their types, and either merges and the
// name of a pre-tokenizer (byte-level BPE), or scores (SentencePiece's BPE, which llama.cpp calls "llama"). Source:
// llama.cpp, conversion/base.py and src/llama-vocab.cpp.
#pragma once

#include <string>
#include <vector>

#include "base/env.h"
#include "data/tokenizer/tokenizer.h"
#include "format/gguf/gguf_writer.h"

namespace temper {

struct GgufVocabulary {
  GgufMetadata metadata;             // keys "tokenizer.ggml...", but for the chat template
  std::vector<std::string> notices;  // where llama.cpp's ids may differ, for the user
};

// `rows`: of the model's embedding; tokens beyond the tokenizer's are "[PAD<id>]". `tokenizer`: the folder's; its
// stop_ids() become the tokens that end a text. kUnsupported: a tokenizer that llama.cpp does not have, by name.
Result<GgufVocabulary> DescribeVocabulary(Env& env, const std::string& folder, const Tokenizer& tokenizer,
                                          int64_t rows);

}  // namespace temper
