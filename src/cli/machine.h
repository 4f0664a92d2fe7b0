// What the commands ask of the machine they run on.
#pragma once

#include <string>

#include "backend/cpu/isa.h"
#include "tensor/dtype.h"
#include "train/run_config.h"

namespace temper {

RunFacts MachineFacts();
// bf16 where this processor computes in it, else f32.
DType DefaultDType();
std::string Today();  // YYYY-MM-DD, local time

}  // namespace temper
