// Import: a configuration of LLaMA-Factory, Axolotl or TRL as one of ours. Names and values are translated by the table
// of foreign names (config/foreign_names.h). Where the file leaves a setting open and the other tool's default is not
// ours, the other tool's is written, so that the run stays the same.
#pragma once

#include <string>
#include <string_view>

#include "base/env.h"
#include "base/status.h"
#include "config/imported_run.h"
#include "config/translation.h"

namespace temper {

// `text` is the content of `file`. Errors: what is no configuration, or one for something else than training; a value
// that cannot be read; settings that contradict each other; another objective.
Result<ImportedRun> ImportRun(Env& env, std::string_view text, const std::string& file, const ImportOptions& options);

}  // namespace temper
