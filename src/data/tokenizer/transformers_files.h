// TransformersFiles: changes to a model folder's files with which transformers gives the same ids as Temper.
//
// transformers 5 uses a tokenizer.json unchanged only for some values of "tokenizer_class". For LlamaTokenizer it takes
// only vocabulary and merges and builds its own pipeline around them: " hello" of Llama 2 becomes one token less than
// in transformers 4, tokenizers and SentencePiece. Both versions read the file of a PreTrainedTokenizerFast unchanged,
// but then only its post_processor decides which tokens are put around a text: add_bos_token has no effect.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/env.h"

namespace temper {

struct TransformersFiles {
  // By file name: the new text in an exported folder; without a text the file is omitted.
  std::map<std::string, std::optional<std::string>> replaced;
  std::string why;  // one line for the user; empty if transformers already gives the same ids
};

// Reads the tokenizer's files of `folder`. Those that cannot be read are not replaced.
TransformersFiles FilesForTransformers(Env& env, const std::string& folder);

}  // namespace temper
