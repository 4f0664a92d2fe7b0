// The quantization_config that transformers writes into the config.json of a quantised model.
#pragma once

#include <string>

#include "base/status.h"
#include "format/json.h"

namespace temper {

// kUnsupported where config.json says that the weights are quantised in another way than bitsandbytes' nf4 with double
// quantisation. `where` names the file in errors.
Status CheckQuantisation(const Json& config, const std::string& where);
// Whether the linear modules of a model are stored so. REQUIRES: CheckQuantisation was OK.
bool IsStoredAsNf4(const Json& config);
// Of a multimodal model: `text`, the configuration of its text model, says what `config` says, if that says anything.
void TakeQuantisation(const Json& config, Json* text);

}  // namespace temper
