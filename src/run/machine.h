// What the commands ask of the machine they run on.
#pragma once

#include <memory>
#include <string>

#include "config/run_config.h"
#include "run/machine_limits.h"
#include "run/processor.h"
#include "run/ranks.h"

namespace temper {

// Errors: as ChooseProcessor.
Result<RunFacts> MachineFacts(DeviceChoice device, const RankOfMachine& rank = {});
// The same as all ranks are to see it: what differs between them is that of the first. All ranks make this call at the
// same place.
Result<RunFacts> CommonFacts(const Ranks& ranks, const RunConfig& config);
// What a rank may still take of its machine's memory, which it shares with the others there, and of that of its `gpu`
// (nullptr: none): the same for all ranks, so that all decide alike. All ranks make this call at the same place.
Result<RankMemory> MemoryOfRank(const Ranks& ranks, Device* gpu);
// The same of a command that is alone.
Result<ProcessMemory> MemoryFor(const Processor& processor);
// What each of `ranks` ranks would find on this machine, and on the GPU that the first would compute on, which is
// opened and must outlive the result. Without a GPU to be had that of the host alone: a plan needs none.
RankMemory MemoryForPlan(DeviceChoice device, int ranks, std::unique_ptr<Device>* opened);
std::string Today();  // YYYY-MM-DD, local time

}  // namespace temper
