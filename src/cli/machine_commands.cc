// temper version, temper doctor: describe this binary and this machine.
#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "base/machine_memory.h"
#include "base/processors.h"
#include "base/program_name.h"
#include "base/team.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "run/calibration.h"
#include "run/machine.h"
#include "run/machine_report.h"
#include "run/model_options.h"
#include "run/processor.h"

namespace temper {
namespace {

std::string Libraries() {
  return fmt::format("fmt {}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
}

struct NoSettings {
  static std::vector<OptionGroup> Groups() { return {}; }
};

Result<int> Version(const Arguments& arguments) {
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, {}, kVersionCommand));
  if (!line) return 0;
  std::fputs(
      fmt::format("temper {} ({}, g++ {})\n{}\n", TEMPER_VERSION, InstructionSet(), __VERSION__, Libraries()).c_str(),
      stdout);
  return 0;
}

// Measures this machine as a cluster and saves the result for `--cluster this`.
Result<int> Calibrate() {
  TEMPER_ASSIGN_OR_RETURN(const std::string path, CalibrationPath());
  TEMPER_ASSIGN_OR_RETURN(const Cluster cluster, CalibrateAndSave(PosixEnv()));
  std::string text;
  for (const auto& [ranks, share] : cluster.shares) {
    text += fmt::format("{} rank{:<5}{:.0f} GFLOP/s each in f32 products, {:.0f} in bf16", ranks,
                        ranks == 1 ? " " : "s", share.f32_peak * 1e-9, share.bf16_peak * 1e-9);
    if (ranks > 1) {
      text += fmt::format("; {:.1f} GB/s to the others, latency {:.0f} us", share.link.bytes_per_second * 1e-9,
                          share.link.latency.v * 1e6);
    }
    text += '\n';
  }
  text += fmt::format("disk        reads {:.2f} GB/s, writes {:.2f} GB/s\nsaved in    {}: {} plan --cluster this\n",
                      cluster.disk_read * 1e-9, cluster.disk_write * 1e-9, path, ProgramName());
  std::fputs(text.c_str(), stdout);
  return 0;
}

struct DoctorSettings {
  bool calibrate = false;

  std::vector<OptionGroup> Groups() {
    return {{"Measurements",
             {{.name = "calibrate",
               .target = &calibrate,
               .help = "measure products, attention, norms, collectives and the disk (some seconds, on an idle "
                       "machine) and save the result for `temper plan --cluster this`"}}}};
  }
};

Result<int> Doctor(const Arguments& arguments) {
  DoctorSettings settings;
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, settings.Groups(), kDoctorCommand));
  if (!line) return 0;
  if (settings.calibrate) return Calibrate();
  const int threads = AvailableProcessors();
  std::string text =
      fmt::format("cores       {}\ninstructions {}\nmemory      {} available\nlibraries   {}\n",
                  ProcessorsAtStart().ToString(), InstructionSet(), FindAvailableMemory().ToString(), Libraries());
  text += DescribeGpus() + DescribeGpuRates() + DescribeCpuRates(threads);
  TEMPER_ASSIGN_OR_RETURN(const ProcessorChoice processor, ChooseProcessor(DeviceChoice::kAuto));
  text += fmt::format("default     {} on {} (what --dtype auto and --device auto choose)\n",
                      ToString(processor.dtype()), processor.name);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

const Command kVersionCommand = {.name = "version",
                                 .summary = "version and libraries",
                                 .usage = "usage: temper version\n\nVersion and libraries.\n",
                                 .first_word = FirstWord::kNone,
                                 .words = "",
                                 .run = Version,
                                 .read_options = ReadOptionsOf<NoSettings>};

const Command kDoctorCommand = {.name = "doctor",
                                .summary = "show this machine's processors, memory and speed",
                                .usage =
                                    "usage: temper doctor [--calibrate]\n\nShows this machine's processors, "
                                    "memory and speed, measured in some seconds.\n",
                                .first_word = FirstWord::kNone,
                                .words = "",
                                .run = Doctor,
                                .read_options = ReadOptionsOf<DoctorSettings>};

}  // namespace temper
