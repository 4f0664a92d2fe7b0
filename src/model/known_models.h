// The shapes of well-known models, by name, so that a run of them can be planned without their files.
// examples/models/*.json holds them, one file per maker, compiled into the program.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/json.h"

namespace temper {

// The texts of examples/models/*.json: objects from a name to a config.json with what memory and speed depend on, but
// not what only values depend on, such as the base of rotary embeddings. Made by cmake/embedded_files.cmake.
const std::vector<std::string_view>& KnownModelFiles();

// Names in lowercase, in the order of the files.
std::vector<std::string> KnownModelNames();

// The configuration of the model of that name, in upper or lower case; nullopt if it is not known.
std::optional<Json> FindKnownModel(std::string_view name);

// The known name closest to `name`, empty if none is close.
std::string NearestKnownModel(std::string_view name);

}  // namespace temper
