#include "api/run_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "base/quantity.h"
#include "config/run_options.h"
#include "data/tokenizer/transformers_files.h"
#include "model/model.h"
#include "run/calibration.h"
#include "run/scalar_kernels.h"
#include "run/teacher_model.h"

namespace temper {
namespace {

constexpr double kNotable = 0.8;  // of the calibrated peak: clocks and short measurements vary less

// "229 GFLOP/s", "3.41 GFLOP/s", "790 TFLOP/s".
std::string PeakText(double flops_per_second) {
  const bool large = flops_per_second >= 1e13;
  return fmt::format("{:.3g} {}", flops_per_second * (large ? 1e-12 : 1e-9), large ? "TFLOP/s" : "GFLOP/s");
}

}  // namespace

void Announce(const TrainingRun& run) {
  const RunConfig& c = run.config();
  LogInfo(fmt::format("model       {} ({}), {}, {:.2f} M trained, {} on {}", c.model.model,
                      run.setup.model.model().facts().architecture,
                      ParametersText(run.compiled.parameters, run.compiled.active_parameters),
                      static_cast<double>(run.compiled.trainable_parameters) * 1e-6, ToString(ComputeDType(c)),
                      c.machine.device == DeviceChoice::kGpu ? "a GPU" : Counted(*c.machine.threads, "thread")));
  if (const std::string teacher = TeacherText(run.setup.model, c.objective.teacher); !teacher.empty()) {
    LogInfo(fmt::format("teacher     {}, frozen", teacher));
  }
  const std::string tokenizer = FilesForTransformers(PosixEnv(), run.setup.model.folder()).why;
  if (!tokenizer.empty()) LogInfo("tokenizer   " + tokenizer);
  if (!run.setup.ranks.alone()) {
    LogInfo(fmt::format("mesh        {}: {}; {} with rows of {} own", run.compiled.mesh.mesh.ToString(),
                        run.setup.ranks.Hosts(), run.compiled.data_ranks(),
                        run.compiled.data_ranks() == 1 ? "its" : "their"));
    if (!run.compiled.mesh_note.empty()) LogInfo("mesh        " + run.compiled.mesh_note);
    for (const Decision& d : run.compiled.decisions) {
      LogInfo(fmt::format("decision    {}: {}, not {}: {}", d.what, d.chosen, d.rejected, d.reason));
    }
  }
  if (const auto& pipeline = run.compiled.pipeline) {
    LogInfo("pipeline    " + pipeline->ToString());
    if (pipeline->micro_batches < pipeline->stages) {
      LogWarning(fmt::format(
          "a step has {} for {} stages: most stages are idle most of the time; raise "
          "gradient_accumulation_steps to {} or more",
          Counted(pipeline->micro_batches, "micro-batch", "micro-batches"), pipeline->stages, 4 * pipeline->stages));
    }
  }
  if (const std::string text = run.compiled.MemoryText(); !text.empty()) {
    LogInfo("memory      " + text);
  }
  for (const std::string& line : OptionLines(run.compiled.memory.options)) LogInfo("memory        " + line);
  if (!run.compiled.rates.empty()) LogInfo("rates       " + run.compiled.rates);
  RunConfig shown = c;
  const OptionSet options = RunOptions(shown);
  for (const auto& [name, note] : run.setup.run.notes) {
    LogInfo(fmt::format("settings    {} {}: {}", name, ValueAsYaml(*options.Find(name)), note));
  }
  WarnOfScalarKernels(run.compiled, c.machine.device);
  const int64_t ranks = run.compiled.data_ranks();
  const int64_t rows = run.RowsPerStep();
  LogInfo(fmt::format("batch       {} of {} a step: {} x {}{}, {}", Counted(rows, "row"),
                      Counted(*c.data.max_seq_len, "token"), Counted(c.batch.per_device_train_batch_size, "row"),
                      Counted(c.batch.gradient_accumulation_steps, "micro-batch", "micro-batches"),
                      ranks > 1 ? " x " + Counted(ranks, "rank") : "", Counted(rows * *c.data.max_seq_len, "token")));
  const MemoryByClass& m = run.compiled.train().peak;
  LogInfo(fmt::format(
      "plan        arena {}: weights {}, adapters {}, gradients {}, optimizer {}, activations {}, workspace {}",
      ToString(run.compiled.train().arena_bytes), ToString(m.weights), ToString(m.adapters), ToString(m.gradients),
      ToString(m.optimizer), ToString(m.activations), ToString(m.workspace)));
}

void LogDisk(const TrainingRun& run) {
  if (!run.engine.far.mapped.empty()) {
    LogInfo(fmt::format("memory      frozen weights are read from {} in every step", run.setup.model.folder()));
  }
  const std::vector<Buffer>& buffers = run.compiled.train().buffers;
  const bool spills = std::any_of(buffers.begin(), buffers.end(),
                                  [](const Buffer& b) { return b.tier() == Tier::kDisk && !IsFrozen(b); });
  if (spills) LogInfo(fmt::format("memory      trained values are kept in {}", run.SpillFolder()));
}

double SettlePeak(const TrainingRun& run) {
  const double now = run.engine.peak;
  if (now <= 0) return 0;
  const RunOnMachine on = run.OnMachine();
  const int ranks = run.setup.ranks.size();
  double then = 0;
  std::string date;
  // A calibration measures the peak of one rank while the others' processors are idle.
  if (const std::optional<std::string> text = on.ranks > 1 ? std::nullopt : CalibrationOf(PosixEnv(), on)) {
    if (const Result<Cluster> calibrated = ParseCluster(*text, kRatesFile); calibrated.ok()) {
      then = calibrated->ShareOf(on.ranks).peak(on.dtype);
      date = calibrated->date;
    }
  }
  const double peak = std::max(now, then);
  if (!run.setup.ranks.first()) return peak;
  LogInfo(fmt::format("MFU         100 % is {}{}, the peak of products in {}, measured {}",
                      ranks > 1 ? fmt::format("{} x ", ranks) : "", PeakText(peak), ToString(on.dtype),
                      now >= then ? "just now" : fmt::format("when the machine was calibrated ({})", date)));
  if (now < kNotable * then) {
    LogWarning(fmt::format("the machine gives {:.0f} % of that now: other work may run on it, or its clock is lower",
                           100 * now / then));
  }
  return peak;
}

}  // namespace temper
