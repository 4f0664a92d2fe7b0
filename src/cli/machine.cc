#include "cli/machine.h"

#include <sched.h>

#include <ctime>

namespace temper {

int64_t CpuCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

DType DefaultDType() {
  return DetectIsa() >= Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm day = {};
  localtime_r(&now, &day);
  char text[16];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%d", &day));
}

RunFacts MachineFacts() {
  return {.cpu_has_bf16 = DefaultDType() == DType::kBF16, .cpu_cores = CpuCores(), .today = Today()};
}

}  // namespace temper
