// What the commands ask of the machine they run on.
#pragma once

#include <string>

#include "backend/cpu/isa.h"
#include "cli/processor.h"
#include "tensor/dtype.h"
#include "train/run_config.h"

namespace temper {

// Errors: as ChooseProcessor.
Result<RunFacts> MachineFacts(DeviceChoice device, const RankOfMachine& rank = {});
// Of the CPU: bf16 where it computes in it, else f32.
DType DefaultDType();
std::string Today();  // YYYY-MM-DD, local time

}  // namespace temper
