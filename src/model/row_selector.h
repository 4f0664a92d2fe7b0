// Which rows of which tables an adapter trains: PEFT's trainable_token_indices on a model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "format/lora_config.h"
#include "format/lora_module.h"
#include "format/trained_copy.h"
#include "format/trained_rows.h"
#include "model/model.h"

namespace temper {

// Rows without a module's name are of the table that tokens are looked up in. A head that is tied to it follows, as in
// PEFT. `file`: as for ResolveLora. Errors: no such module, row or table; a module that has an adapter or is trained
// in full, too.
Result<std::vector<TrainedRows>> SelectRows(const Model& model, const LoraConfig& config,
                                            std::span<const LoraModule> adapters, std::span<const TrainedCopy> copies,
                                            const std::string& file);

}  // namespace temper
