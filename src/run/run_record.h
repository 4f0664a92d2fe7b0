// What of a run is written down beside its numbers: the resolved configuration, the adapter's description, and what
// must be equal for the same bits to come out again.
#pragma once

#include <string>

#include "checkpoint/manifest.h"
#include "config/run_config.h"
#include "format/lora_config.h"
#include "plan/compiled_run.h"
#include "run/opened_model.h"
#include "run/ranks.h"

namespace temper {

// As YAML that `temper train` takes; without what must not be repeated (resume, overwrite).
std::string SavedConfig(const RunConfig& config);
// `lora` as its adapter_config.json says it: all-linear is spelled out by the names of `modules`, as other readers of
// adapters do not know the word; the base as PEFT names it: of the Hugging Face cache by its name, else by its absolute
// path.
LoraConfig SavedLora(LoraConfig lora, const std::vector<LoraModule>& modules, const OpenedModel& model);
// The same on all ranks, which all call this at the same place: each has a Program of its own, the first one's stands
// for all. `device`: what `kernels` compute on.
Result<RunIdentity> IdentityOf(const CompiledRun& run, const std::string& kernels, DeviceChoice device,
                               const Ranks& ranks);

}  // namespace temper
