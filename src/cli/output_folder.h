// The output folder of a run: nothing that is there already is lost by accident.
#pragma once

#include <optional>
#include <string>

#include "base/env.h"
#include "train/run_config.h"

namespace temper {

// A folder with a run in it is refused unless the user said --resume or --overwrite. --overwrite removes what an
// earlier run wrote (checkpoints, metrics, adapter, ...) and nothing else. With --resume: the checkpoint to go on from,
// the newest where none is named (the result of an earlier end of the run is removed first); nothing where the folder
// has none yet (the run then starts from the beginning).
Result<std::optional<std::string>> ClaimOutputFolder(Env& env, const RunConfig& config);

}  // namespace temper
