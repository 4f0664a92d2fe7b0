// Whether a config.json says that the experts of a model are stored as MXFP4, as OpenAI publishes gpt-oss.
#pragma once

#include "format/json.h"

namespace temper {

// REQUIRES: CheckQuantisation (model/quantisation_config.h) was OK.
bool HasMxfp4Experts(const Json& config);

}  // namespace temper
