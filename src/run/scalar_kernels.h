// Reports which ops of a run the CPU computes with scalar kernels, because these make a run many times slower.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "compile/run/compiled_run.h"

namespace temper {

// A line for each op of `program` that has a scalar kernel on `isa`, with its operands and the reason, once for each
// reason. Ops on a few numbers, which take no time, are omitted.
std::vector<std::string> ScalarKernels(const Program& program, Isa isa);

// Warns of these for all Programs of `run` on this machine's CPU. `device`: the run's device.
void WarnOfScalarKernels(const CompiledRun& run, DeviceChoice device);

}  // namespace temper
