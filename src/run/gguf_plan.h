// What `temper export --format gguf` writes of an opened model: its tensors as llama.cpp has them, its tokenizer and
// its chat templates, and beside the file an Ollama Modelfile.
#pragma once

#include <string>

#include "checkpoint/gguf_export.h"
#include "run/opened_model.h"

namespace temper {

// The caller adds destination, type and threads. kUnsupported: a family, a tokenizer or a setting that GGUF files
// cannot hold, by name. A model without a tokenizer is written without one, with a notice.
Result<GgufExportSpec> PlanGguf(Env& env, const OpenedModel& model);

// The same for its adapter alone (ExportGgufAdapter): without tokenizer and templates, with the base's name.
Result<GgufExportSpec> PlanGgufAdapter(const OpenedModel& model);

// The text of a Modelfile for `file`, in the same folder: the model, the chat template in Ollama's language if it can
// be translated (else a comment that says so), and the texts at which to stop.
Result<std::string> ModelfileOf(const OpenedModel& model, const std::string& file);

}  // namespace temper
