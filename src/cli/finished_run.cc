#include "cli/finished_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/training_state.h"
#include "train/loss_curve.h"
#include "train/metrics.h"
#include "train/progress.h"

namespace temper {
namespace {

// The checkpoint whose weights are the run's result.
Result<std::string> ResultCheckpoint(Env& env, const RunConfig::Output& output) {
  if (output.load_best_model_at_end) {
    TEMPER_ASSIGN_OR_RETURN(const auto best, BestCheckpoint(env, output.output_dir));
    if (best) return best->path;
  }
  TEMPER_ASSIGN_OR_RETURN(const CheckpointEntry latest, LatestCheckpoint(env, output.output_dir));
  return latest.path;
}

void PrintLossCurve(Env& env, const std::string& metrics_path) {
  const auto history = ReadLossHistory(env, metrics_path);
  if (!history.ok()) return;  // it was written a moment ago; the curve is only a picture
  const std::string curve = DrawLossCurve(history->training, history->evaluation,
                                          {.width = std::min(TerminalWidth(), 100), .unicode = LocaleIsUtf8()});
  if (!curve.empty()) LogInfo("\n" + curve);
}

void PrintNextCommands(const std::string& out, bool lora) {
  LogInfo(
      fmt::format("next:\n  temper chat --model {0}\n  temper generate --model {0} --prompt \"...\"\n  temper export "
                  "--model {0} --output_dir {0}-{1}",
                  out, lora ? "merged" : "export"));
}

}  // namespace

Result<int> FinishRun(Env& env, const OpenedModel& model, const RunConfig& config, const CompiledRun& run,
                      const RunProgress& progress) {
  const std::string& out = config.output.output_dir;
  const bool lora = !run.targets.empty();
  TEMPER_ASSIGN_OR_RETURN(const std::string checkpoint, ResultCheckpoint(env, config.output));
  std::vector<std::string> files = {kAdapterWeightsFile, kAdapterConfigFile};
  if (!lora) {
    // f32 masters: the same tensors that the checkpoint holds. `temper export` rounds them to the base's type.
    TEMPER_ASSIGN_OR_RETURN(files, CompanionFiles(env, model.folder()));
    files.insert(files.begin(), kModelWeightsFile);
    // What makes the folder a model comes last.
    std::stable_partition(files.begin(), files.end(), [](const std::string& name) { return name != kModelConfigFile; });
  }
  for (const std::string& name : files) {
    TEMPER_RETURN_IF_ERROR(CopyFileDurably(env, JoinPath(checkpoint, name), JoinPath(out, name)).status());
  }
  PrintLossCurve(env, JoinPath(out, "metrics.jsonl"));
  LogInfo(fmt::format("done        {} steps, {} tokens in {}; {}", progress.step, progress.tokens,
                      ToString(Seconds{progress.seconds}), checkpoint));
  if (progress.best_eval_loss) {
    LogInfo(fmt::format("best        eval_loss {:.4f} at step {}", *progress.best_eval_loss, progress.best_step));
  }
  LogInfo(fmt::format("memory      {} planned and reserved, {} resident at the peak", ToString(run.train().arena_bytes),
                      ToString(PeakResidentMemory())));
  PrintNextCommands(out, lora);
  return 0;
}

}  // namespace temper
