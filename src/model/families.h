// The families of models that Temper computes: a file each, and a line in the table here.
#pragma once

#include <memory>
#include <string>

#include "model/model.h"

namespace temper {

// What config.json describes. `where` names the file in errors. Unknown architectures are kUnsupported, listing the
// known ones.
Result<std::unique_ptr<Model>> ModelFromConfig(const Json& config, const std::string& where);

}  // namespace temper
