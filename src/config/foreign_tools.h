// Foreign tools: the other tools whose configurations `temper import` reads, by what tells their files apart, and their
// defaults.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/foreign_file.h"
#include "config/option_set.h"

namespace temper {

// A default of a tool that is not ours.
struct ToolDefault {
  std::string_view option, value;
};

std::string_view ToString(ForeignTool tool);       // "LLaMA-Factory"
std::vector<std::string_view> ForeignToolNames();  // as values of an option, in the order of the enum
std::span<const ToolDefault> DefaultsOf(ForeignTool tool);

// By the program that a script starts, or the names of the settings. Errors: they fit several tools or none; they are
// Temper's own, or those of a tool whose recipes are not read.
Result<ForeignTool> RecogniseTool(const ForeignFile& content, const std::string& file);

}  // namespace temper
