#include "cli/machine.h"

#include <sched.h>

namespace temper {

int64_t CpuCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

DType DefaultDType() {
  return DetectIsa() >= Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

RunFacts MachineFacts() {
  return {.cpu_has_bf16 = DefaultDType() == DType::kBF16, .cpu_cores = CpuCores()};
}

}  // namespace temper
