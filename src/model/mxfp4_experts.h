// What a config.json says of experts that are stored as MXFP4, as OpenAI publishes gpt-oss.
#pragma once

#include <string>
#include <vector>

#include "format/json.h"

namespace temper {

// REQUIRES: CheckQuantisation (model/quantisation_config.h) was OK.
bool HasMxfp4Experts(const Json& config);

// The modules that are not, by their whole names: modules_to_not_convert of quantization_config. Of its patterns no
// other form is known to mean experts.
std::vector<std::string> ModulesNotInMxfp4(const Json& config);

}  // namespace temper
