// GgufFolder: a GGUF file as a model folder. All commands work on folders, so a file that is given as a model gets one
// of its own among Temper's cached files: config.json, the tokenizer's files and chat templates from its keys, and a
// map (format/gguf/gguf_view.h) by which its weights are read where they stand. Nothing of the weights is copied.
#pragma once

#include <string>

#include "base/env.h"
#include "base/status.h"

namespace temper {

// The folder of the GGUF file `path`: made, or made before of this same file. kUnsupported, with what it is, where
// Temper would not compute what llama.cpp does, or has no such tokenizer.
Result<std::string> FolderOfGguf(Env& env, const std::string& path);

}  // namespace temper
