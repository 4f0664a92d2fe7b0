// temper version, temper doctor: what this binary is and what this machine can do.
#include <fmt/format.h>
#include <omp.h>

#include <cstdio>

#include "backend/cpu/gemm_peak.h"
#include "backend/cpu/team.h"
#include "backend/gpu/gpu_device.h"
#include "cli/commands.h"
#include "cli/machine.h"
#include "cli/model_options.h"
#include "runtime/arena.h"

namespace temper {
namespace {

std::string Libraries() {
  return fmt::format("OpenMP {}, fmt {}.{}.{}", _OPENMP, FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                     FMT_VERSION % 100);
}

// A line per GPU, or one that says why there is none.
std::string Gpus() {
  auto found = ListGpus();
  if (!found.ok()) return fmt::format("gpu         none: {}\n", found.status().message());
  std::string text = fmt::format("gpu         {}\n", found->libraries);
  for (size_t i = 0; i < found->gpus.size(); ++i) {
    const GpuFacts& gpu = found->gpus[i];
    text += fmt::format("gpu {:<7} {}, compute capability {}.{}, {} of {} free{}\n", i, gpu.name, gpu.major, gpu.minor,
                        ToString(gpu.free), ToString(gpu.memory),
                        gpu.refused.empty() ? "" : "; cannot be used: " + gpu.refused);
  }
  return text;
}

}  // namespace

Result<int> VersionCommand(const Arguments& arguments) {
  TEMPER_ASSIGN_OR_RETURN(const bool go,
                          ReadCommandOptions(arguments, {}, "usage: temper version\n\nVersion and libraries.\n"));
  if (!go) return 0;
  std::fputs(
      fmt::format("temper {} ({}, g++ {})\n{}\n", TEMPER_VERSION, ToString(DetectIsa()), __VERSION__, Libraries())
          .c_str(),
      stdout);
  return 0;
}

Result<int> DoctorCommand(const Arguments& arguments) {
  TEMPER_ASSIGN_OR_RETURN(
      const bool go,
      ReadCommandOptions(arguments, {},
                         "usage: temper doctor\n\nWhat this machine can do, measured in about a second.\n"));
  if (!go) return 0;
  const int threads = AvailableProcessors();
  std::string text = fmt::format("cores       {}\ninstructions {}\nmemory      {} available\nlibraries   {}\n", threads,
                                 ToString(DetectIsa()), ToString(AvailableMemory()), Libraries());
  text += Gpus();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    text += fmt::format("{:<11} {:.0f} GFLOP/s in matrix products\n", ToString(dtype),
                        MeasureGemmPeak(dtype, threads, DetectIsa()) * 1e-9);
  }
  text += fmt::format("default     {} (what --dtype auto chooses)\n", ToString(DefaultDType()));
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace temper
