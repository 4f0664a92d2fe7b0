// Says which ops of a run the CPU computes with scalar kernels: a run that is many times slower than it might be should
// not be so in silence.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "plan/compiled_run.h"

namespace temper {

// A line for each op of `program` that has a scalar kernel on `isa`, with its operands and the reason, once for each
// reason. Ops on a few numbers, which take no time, are left out.
std::vector<std::string> ScalarKernels(const Program& program, Isa isa);

// Warns of those of all Programs of `run` on this machine's CPU. `device`: what the run computes on.
void WarnOfScalarKernels(const CompiledRun& run, DeviceChoice device);

}  // namespace temper
