#include "run/diverged_run.h"

#include <fmt/core.h>

#include <optional>

#include "base/check.h"
#include "checkpoint/checkpoint_folder.h"
#include "format/quoted.h"

namespace temper {

bool IsFromDivergence(const RunProgress& progress, int64_t step) {
  TEMPER_CHECK(progress.divergence.diverged());
  // The loss of a step is that of the weights of the step before.
  return step + 1 >= progress.divergence.Since(progress.step);
}

Result<std::string> DescribeDivergedRun(Env& env, const RunConfig& config, const RunProgress& progress, bool stopped) {
  TEMPER_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(env, config.output.output_dir));
  std::optional<CheckpointEntry> good;
  for (const CheckpointEntry& checkpoint : checkpoints) {
    if (!IsFromDivergence(progress, checkpoint.step)) good = checkpoint;
  }
  std::string text = fmt::format("{}the run diverged: {}. ", stopped ? fmt::format("step {}: ", progress.step) : "",
                                 progress.divergence.Describe(progress.step));
  if (stopped) text += "stop_on_divergence ends it. ";
  const std::string lower =
      fmt::format("a lower learning_rate (now {}) or a longer warmup", config.optimizer.learning_rate.value_or(0));
  if (!good) return text + fmt::format("No checkpoint is from before: start again with --overwrite and {}", lower);
  return text + fmt::format("The last good checkpoint is {}: go on from it with --resume={} and {}",
                            ShellWord(good->path), BaseName(good->path), lower);
}

}  // namespace temper
