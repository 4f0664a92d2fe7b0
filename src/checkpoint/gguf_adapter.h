// A LoRA adapter as a GGUF file of its own, which llama.cpp adds to a base file (--lora): A and B of each tensor, with
// the rows and columns in the order that the base's GGUF file has them.
#pragma once

#include "checkpoint/gguf_export.h"

namespace temper {

// Writes spec.file; of spec.model the tensors that the adapter changes. All products have one alpha there: where
// alpha / r differs between modules, B takes the rest. Errors, kUnsupported and by name: what such a file cannot hold
// (DoRA, stacks of experts, a head that is the embedding, modules or rows that were trained in full, quantised types).
Result<ExportReport> ExportGgufAdapter(Env& env, const GgufExportSpec& spec);

}  // namespace temper
