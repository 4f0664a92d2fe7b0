// What settings of other tools are where their files do not name them. A file that writes such a value says nothing.
#pragma once

#include <optional>
#include <string_view>

#include "config/option_set.h"
#include "format/json.h"

namespace temper {

// Whether the tool does the same without the setting. Where its own code decides on a setting that is left open, no
// value is the default.
bool IsDefault(ForeignTool tool, std::string_view name, const OrderedJson& value);

// The default as JSON where it is more than "off" (null, false, an empty text or list); else nullopt.
std::optional<std::string_view> ForeignDefault(ForeignTool tool, std::string_view name);

}  // namespace temper
