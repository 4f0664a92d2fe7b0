// The other way round than gguf_vocabulary.h: the tokenizer of a GGUF file as files of a model folder. Byte-level BPE
// becomes a tokenizer.json, SentencePiece's BPE a tokenizer.model with the file's scores.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "format/gguf/gguf_writer.h"

namespace temper {

// Texts by name: the tokenizer's files, generation_config.json with the tokens that end a text, and the chat templates.
// Empty if the file has no tokenizer. `where` names the file in errors. kUnsupported: another kind of tokenizer, or a
// pre-tokenizer that is not known.
Result<std::map<std::string, std::string>> TokenizerFilesOfGguf(const GgufMetadata& keys, const std::string& where);

}  // namespace temper
