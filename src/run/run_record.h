// What a run saves besides its numbers: the resolved configuration,
// the adapter's description, and the facts on which its bits depend.
#pragma once

#include <string>

#include "base/env.h"
#include "checkpoint/manifest.h"
#include "compile/run/compiled_run.h"
#include "format/lora_config.h"
#include "run/opened_model.h"
#include "run/ranks.h"
#include "settings/run_config.h"

namespace temper {

// As YAML for `temper train`, without options that must not be repeated (resume, overwrite): for checkpoints, with
// paths as they were given.
std::string SavedConfig(const RunConfig& config);
// The same for the output folder: it repeats the run from any folder.
std::string RepeatableConfig(Env& env, RunConfig config);
// `lora` for adapter_config.json: all-linear is replaced by the names of the modules with adapters, since other readers
// of adapters may not know it. The base is named as PEFT names it: by its name and commit in the
// Hugging Face cache, else by its absolute path.
LoraConfig SavedLora(LoraConfig lora, const TrainableSet& trains, const OpenedModel& model);
// The same on all ranks, which call this at the same place. Each has its own Program; the first one's hash is used for
// all. `device`: the device of `kernels`.
Result<RunIdentity> IdentityOf(const CompiledRun& run, const std::string& kernels, DeviceChoice device,
                               const Ranks& ranks);

}  // namespace temper
