// TransformersFiles: what a model folder must say for transformers to give the ids that Temper gives, where it does
// not.
//
// transformers 5 reads a tokenizer.json as it is only for some values of "tokenizer_class". For LlamaTokenizer it takes
// vocabulary and merges alone and puts a pipeline of its own around them: " hello" of Llama 2 becomes one token less
// than in transformers 4, tokenizers and SentencePiece. Both versions read the file of a PreTrainedTokenizerFast as it
// is, but then only its post_processor tells what is put around a text: add_bos_token counts no more.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/env.h"

namespace temper {

struct TransformersFiles {
  // By name: the text that an exported folder has in the place of this one's; without one the file is left out.
  std::map<std::string, std::optional<std::string>> replaced;
  std::string why;  // one line for the user; empty where transformers gives the ids by itself
};

// Reads the tokenizer's files of `folder`. Those that cannot be read are not replaced.
TransformersFiles FilesForTransformers(Env& env, const std::string& folder);

}  // namespace temper
