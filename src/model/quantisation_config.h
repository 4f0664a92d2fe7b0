// The quantization_config that transformers writes into the config.json of a quantised model. What is read, the rules
// of formats say (StoredFormat in tensor/format_rule.h).
#pragma once

#include <map>
#include <span>
#include <string>

#include "base/status.h"
#include "format/json.h"
#include "model/model.h"
#include "model/weight.h"

namespace temper {

// kUnsupported where config.json says that the weights are quantised in a way that is not read. `where` names the file
// in errors.
Status CheckQuantisation(const Json& config, const std::string& where);
// Sets what `config` says of the formats of linear modules and experts; `has_stored_experts`: of a format that experts
// alone have (StoredFormat::of_experts), in families that are published so. REQUIRES: CheckQuantisation was OK.
void ReadStoredFormat(const Json& config, bool has_stored_experts, ModelFacts* facts);
// From now on ReadStoredFormat finds that files have experts, too, in the format of linear modules: config.json does
// not say, and transformers before 5, where each matrix of an expert was a linear module, wrote such folders.
void NoteQuantisedExperts(Json* config);
// kUnsupported where experts are stored in such a format and the family, which has set `facts`, does not read it.
Status CheckFormatIsRead(const Json& config, const ModelFacts& facts, const std::string& where);
// Of a multimodal model: `text`, the configuration of its text model, says what `config` says, if that says anything.
void TakeQuantisation(const Json& config, Json* text);

// Adds a quantization_config that names the format of each of these modules of a GGUF file
// (ModelFacts::module_formats); nothing where there are none.
void AddFormats(const std::map<std::string, std::string>& formats, Json* config);

// The module's name there: that of a parameter is its module's.
std::string NameInConfig(const LinearModule& module);
// Whether one of these names of modules_to_not_convert means the module, or that of the parameter: its name, a module
// that it lies in, or how its name ends, as in transformers (should_convert_module).
bool IsLeft(const LinearModule& module, std::span<const std::string> names);

}  // namespace temper
