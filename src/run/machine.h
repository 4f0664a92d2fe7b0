// The facts of the machine that commands run on.
#pragma once

#include <memory>
#include <string>

#include "run/machine_limits.h"
#include "run/processor.h"
#include "run/ranks.h"
#include "settings/run_config.h"

namespace temper {

// Errors: as ChooseProcessor.
Result<RunFacts> MachineFacts(DeviceChoice device, const RankOfMachine& rank = {});
// The same facts for all ranks: the first one's where they differ. All ranks make this call at the same place.
Result<RunFacts> CommonFacts(const Ranks& ranks, const RunConfig& config);
// The memory still free for a rank on its machine, which it shares with other ranks, and on its `gpu` (nullptr: none):
// the same for all ranks, so that all decide alike. All ranks make this call at the same place.
Result<RankMemory> MemoryOfRank(const Ranks& ranks, Device* gpu);
// The same for a command with a single rank.
Result<ProcessMemory> MemoryFor(const Processor& processor);
// The memory that each of `ranks` ranks would have on this machine, and on the GPU of the first, which is opened and
// must outlive the result. Without a usable GPU, only the host's: a plan does not need one.
RankMemory MemoryForPlan(DeviceChoice device, int ranks, std::unique_ptr<Device>* opened);
std::string Today();  // YYYY-MM-DD, local time

}  // namespace temper
