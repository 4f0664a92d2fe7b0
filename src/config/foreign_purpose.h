// Foreign purpose: whether a file of another tool starts a training. Those tools also chat, export, serve and evaluate
// by files of the same form, which as a training would look as if all were well.
#pragma once

#include <string>

#include "base/status.h"
#include "config/foreign_file.h"
#include "config/option_set.h"

namespace temper {

// Error: it does something else; with the command of ours that does it.
Status CheckTrains(const ForeignFile& content, ForeignTool tool, const std::string& file);

}  // namespace temper
