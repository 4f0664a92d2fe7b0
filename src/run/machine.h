// What the commands ask of the machine they run on.
#pragma once

#include <string>

#include "config/run_config.h"
#include "run/machine_limits.h"
#include "run/processor.h"
#include "run/ranks.h"

namespace temper {

// Errors: as ChooseProcessor.
Result<RunFacts> MachineFacts(DeviceChoice device, const RankOfMachine& rank = {});
// What a rank may still take of its machine's memory, which it shares with the others there, and of that of its `gpu`
// (nullptr: none): the same for all ranks, so that all decide alike. All ranks make this call at the same place.
Result<RankMemory> MemoryOfRank(const Ranks& ranks, Device* gpu);
// The same of a command that is alone.
Result<ProcessMemory> MemoryFor(const Processor& processor);
std::string Today();  // YYYY-MM-DD, local time

}  // namespace temper
