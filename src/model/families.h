// The families of models that Temper computes (model/family_list.inc).
#pragma once

#include <memory>
#include <string>

#include "model/model.h"

namespace temper {

// The model that the config.json of a family describes. `where` names the file in errors.
using FamilyReader = Result<std::unique_ptr<Model>>(const Json& config, const std::string& where);
#define TEMPER_FAMILY(architecture, model_type, reader) FamilyReader reader;
#define TEMPER_MULTIMODAL(architecture, model_type, text_type)
#include "model/family_list.inc"

// Reads config.json with the reader of its family. Unknown architectures are kUnsupported; the message names the
// nearest known one and lists all.
Result<std::unique_ptr<Model>> ModelFromConfig(const Json& config, const std::string& where);

}  // namespace temper
