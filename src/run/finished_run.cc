#include "run/finished_run.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "base/machine_memory.h"
#include "base/quantity.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/sliced_weights.h"
#include "checkpoint/training_state.h"
#include "checkpoint/weight_checksums.h"
#include "data/tokenizer/transformers_files.h"
#include "format/lora_config.h"
#include "format/quoted.h"
#include "run/far_memory.h"
#include "train/loss_curve.h"
#include "train/metrics.h"
#include "train/progress.h"

namespace temper {
namespace {

// The checkpoint whose weights are the run's result. A run that was
// resumed into another folder with no steps left has none of its own.
Result<std::string> ResultCheckpoint(Env& env, const RunConfig::Output& output,
                                     const std::optional<ResumePoint>& resume) {
  if (output.load_best_model_at_end) {
    TEMPER_ASSIGN_OR_RETURN(const auto best, BestCheckpoint(env, output.output_dir));
    if (best) return best->path;
  }
  TEMPER_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(env, output.output_dir));
  TEMPER_CHECK(!checkpoints.empty() || resume) << "a run ended without a checkpoint";
  return checkpoints.empty() ? resume->path() : checkpoints.back().path;
}

void PrintLossCurve(Env& env, const std::string& metrics_path) {
  const auto history = ReadLossHistory(env, metrics_path);
  if (!history.ok()) return;  // unlikely, and the curve is not essential
  const std::string curve = DrawLossCurve(history->training, history->evaluation,
                                          {.width = std::min(TerminalWidth(), 100), .unicode = LocaleIsUtf8()});
  if (!curve.empty()) LogInfo("\n" + curve);
}

// The weights of a full run, with the other tensors of a multimodal model's folder. Returns ChecksumHex of the file.
Result<std::string> WriteModel(Env& env, const FinishedRun& run, const std::string& checkpoint, const std::string& to) {
  if (!run.model.facts().keeps_other_tensors) {
    const std::string whole = JoinPath(checkpoint, kModelWeightsFile);
    if (!env.IsFile(whole)) return JoinWeights(env, checkpoint, to);
    TEMPER_ASSIGN_OR_RETURN(const FileDigest copied, CopyFileDurably(env, whole, to));
    return copied.checksum;
  }
  TEMPER_ASSIGN_OR_RETURN(const ModelWeights base, OpenModelWeights(env, run.model_folder));
  std::vector<ModelWeights::Entry> others;
  for (const std::string& name : UnusedTensors(base, FileTensorsOf(run.model.StoredWeights()))) {
    others.push_back(base.Find(name));
  }
  return JoinWeights(env, checkpoint, to, others);
}

void PrintNextCommands(std::string out, bool lora, bool chats) {
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  const std::string name = BaseName(out), kind = lora ? "merged" : "export";
  const std::string beside = name == "." || name == ".." ? kind : out + "-" + kind;
  LogInfo(
      fmt::format("next:{1}\n  temper generate --model {0} --prompt \"...\"\n  temper export --model {0} "
                  "--output_dir {2}",
                  ShellWord(out), chats ? "\n  temper chat --model " + ShellWord(out) : "", ShellWord(beside)));
}

}  // namespace

Result<int> FinishRun(Env& env, const FinishedRun& run) {
  const RunConfig::Output& output = run.output;
  const RunProgress& progress = run.progress;
  const Program& train = run.compiled.train();
  const std::string& out = output.output_dir;
  const bool lora = !run.compiled.targets.empty();
  TEMPER_ASSIGN_OR_RETURN(const std::string checkpoint, ResultCheckpoint(env, output, run.resume));
  std::vector<std::string> files = {kAdapterWeightsFile, kAdapterConfigFile};
  if (!lora) {
    // f32 masters: the same tensors that the checkpoint holds. `temper export` rounds them to the base's type.
    TEMPER_ASSIGN_OR_RETURN(files, CompanionFiles(env, run.model_folder));
    files.insert(files.begin(), kModelWeightsFile);
    // config.json, which makes the folder a model, comes last.
    std::stable_partition(files.begin(), files.end(), [](const std::string& name) { return name != kModelConfigFile; });
  }
  TEMPER_RETURN_IF_ERROR(VerifyWeights(env, checkpoint));
  const TransformersFiles exported = FilesForTransformers(env, run.model_folder);
  for (const std::string& name : files) {
    if (const auto it = exported.replaced.find(name); it != exported.replaced.end()) {
      if (it->second) TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(env, JoinPath(out, name), *it->second));
      continue;
    }
    if (name == kModelWeightsFile) {
      TEMPER_ASSIGN_OR_RETURN(const std::string checksum, WriteModel(env, run, checkpoint, JoinPath(out, name)));
      TEMPER_RETURN_IF_ERROR(WriteChecksums(env, out, {{name, checksum}}));
      continue;
    }
    TEMPER_ASSIGN_OR_RETURN(const FileDigest copied,
                            CopyFileDurably(env, JoinPath(checkpoint, name), JoinPath(out, name)));
    if (name != kAdapterWeightsFile) continue;
    TEMPER_RETURN_IF_ERROR(WriteChecksums(env, out, {{name, copied.checksum}}));
  }
  PrintLossCurve(env, JoinPath(out, kMetricsFile));
  LogInfo(fmt::format("done        {}, {} in {}; {}", Counted(progress.step, "step"), Counted(progress.tokens, "token"),
                      ToString(Seconds{progress.seconds}), checkpoint));
  if (progress.best_eval_loss) {
    LogInfo(fmt::format("best        eval_loss {:.4f} at step {}", *progress.best_eval_loss, progress.best_step));
  }
  LogInfo(fmt::format("memory      {} planned and reserved, {} resident at the peak",
                      ToString(train.arena_bytes + train.host.bytes + TransferBuffers(train)),
                      ToString(PeakResidentMemory())));
  PrintNextCommands(out, lora, run.chats);
  return 0;
}

}  // namespace temper
