// temper version, temper doctor: what this binary is and what this machine can do.
#include <fmt/core.h>

#include <cstdio>

#include "backend/cpu/gemm_peak.h"
#include "backend/gpu/gpu_device.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "base/team.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "comm/nccl/nccl_api.h"
#include "run/calibration.h"
#include "run/machine.h"
#include "run/model_options.h"
#include "run/processor.h"

namespace temper {
namespace {

std::string Libraries() {
  return fmt::format("fmt {}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
}

// ", 512.00 MiB of it in use": by all processes, this one's context among them. `collectives`: the library for several
// of its kind.
std::string InUse(int gpu, std::string* collectives) {
  const auto device = OpenGpu(gpu);
  if (!device.ok()) return "; cannot be used: " + device.status().message();
  *collectives = (*device)->collectives_library();
  const auto memory = (*device)->MeasureMemory();
  if (!memory.ok()) return "";
  const std::string holders = (*device)->MemoryHolders();
  return fmt::format(", {} of it in use{}", ToString(memory->beside), holders.empty() ? "" : "; " + holders);
}

// A line per GPU, or one that says why there is none.
std::string Gpus() {
  auto found = ListGpus();
  if (!found.ok()) return fmt::format("gpu         none: {}\n", found.status().message());
  std::string text = fmt::format("gpu         {}\n", found->libraries), collectives;
  for (size_t i = 0; i < found->gpus.size(); ++i) {
    const GpuFacts& gpu = found->gpus[i];
    text += fmt::format(
        "gpu {:<7} {}, compute capability {}.{}, {}{}\n", i, gpu.name, gpu.major, gpu.minor, ToString(gpu.memory),
        gpu.refused.empty() ? InUse(static_cast<int>(i), &collectives) : "; cannot be used: " + gpu.refused);
  }
  if (collectives.empty()) return text;
  const auto between = LoadNccl(collectives);
  return text +
         fmt::format("between     {}\n", between.ok() ? (*between)->library : "none: " + between.status().message());
}

// What can be used of them, measured; or why it cannot.
std::string GpuRates() {
  const auto found = ListGpus();
  std::string text;
  for (size_t i = 0; found.ok() && i < found->gpus.size(); ++i) {
    if (!found->gpus[i].refused.empty()) continue;
    const auto measured = [&]() -> Result<std::string> {
      TEMPER_ASSIGN_OR_RETURN(const auto device, OpenGpu(static_cast<int>(i)));
      TEMPER_ASSIGN_OR_RETURN(const double bf16, MeasureProductPeak(*device, DType::kBF16));
      TEMPER_ASSIGN_OR_RETURN(const double f32, MeasureProductPeak(*device, DType::kF32));
      TEMPER_ASSIGN_OR_RETURN(const CopyRates copies, MeasureCopyRates(*device));
      return fmt::format(
          "{:.0f} TFLOP/s in matrix products of bf16, {:.0f} of f32; copies {:.0f} GB/s within, {:.1f} to it, {:.1f} "
          "from it",
          bf16 * 1e-12, f32 * 1e-12, copies.within * 1e-9, copies.to_device * 1e-9, copies.from_device * 1e-9);
    }();
    text += fmt::format("gpu {:<7} {}\n", i, measured.ok() ? *measured : measured.status().message());
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

namespace {

// Measures this machine as a cluster and keeps the result where `--cluster this` finds it.
Result<int> Calibrate() {
  TEMPER_ASSIGN_OR_RETURN(const std::string path, CalibrationPath());
  Env& env = PosixEnv();
  TEMPER_ASSIGN_OR_RETURN(const Cluster cluster, CalibrateThisMachine(env, FolderOf(path), [](const std::string& what) {
                            LogInfo("measuring   " + what);
                          }));
  TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(env, path, PrintCluster(cluster)));
  std::string text;
  for (const auto& [ranks, share] : cluster.shares) {
    text += fmt::format("{} rank{:<5}{:.0f} GFLOP/s each in f32 products, {:.0f} in bf16", ranks,
                        ranks == 1 ? " " : "s", share.f32_peak * 1e-9, share.bf16_peak * 1e-9);
    if (ranks > 1) {
      text += fmt::format("; {:.1f} GB/s to the others, {:.0f} us a turn", share.link.bytes_per_second * 1e-9,
                          share.link.latency.v * 1e6);
    }
    text += '\n';
  }
  text += fmt::format("disk        reads {:.2f} GB/s, writes {:.2f} GB/s\nkept in     {}: temper plan --cluster this\n",
                      cluster.disk_read * 1e-9, cluster.disk_write * 1e-9, path);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

Result<int> DoctorCommand(const Arguments& arguments) {
  bool calibrate = false;
  std::vector<OptionGroup> groups = {
      {"Measurements",
       {{.name = "calibrate",
         .target = &calibrate,
         .help = "measure products, attention, norms, collectives and the disk (some seconds, on an idle machine) and "
                 "keep the result for `temper plan --cluster this`"}}}};
  TEMPER_ASSIGN_OR_RETURN(
      const bool go,
      ReadCommandOptions(
          arguments, std::move(groups),
          "usage: temper doctor [--calibrate]\n\nWhat this machine can do, measured in about a second.\n"));
  if (!go) return 0;
  if (calibrate) return Calibrate();
  const int threads = AvailableProcessors();
  std::string text = fmt::format("cores       {}\ninstructions {}\nmemory      {} available\nlibraries   {}\n", threads,
                                 ToString(DetectIsa()), FindAvailableMemory().ToString(), Libraries());
  text += Gpus() + GpuRates();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const double rate = MeasureGemmPeak(dtype, threads, DetectIsa()) * 1e-9;
    text += fmt::format("{:<11} {:.{}f} GFLOP/s in matrix products\n", ToString(dtype), rate, rate < 10 ? 2 : 0);
  }
  TEMPER_ASSIGN_OR_RETURN(const ProcessorChoice processor, ChooseProcessor(DeviceChoice::kAuto));
  text += fmt::format("default     {} on {} (what --dtype auto and --device auto choose)\n",
                      ToString(processor.dtype()), processor.name);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace temper
