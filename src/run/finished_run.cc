#include "run/finished_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <span>

#include "base/log.h"
#include "base/machine_memory.h"
#include "base/program_name.h"
#include "base/progress_text.h"
#include "base/quantity.h"
#include "checkpoint/base_digest.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/configured_dtype.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/sliced_weights.h"
#include "checkpoint/training_state.h"
#include "checkpoint/weight_checksums.h"
#include "data/template/chat_template.h"
#include "data/tokenizer/transformers_files.h"
#include "format/lora_config.h"
#include "format/python_json.h"
#include "format/quoted.h"
#include "run/diverged_run.h"
#include "run/far_memory.h"
#include "run/model_card.h"
#include "train/loss_curve.h"
#include "train/metrics.h"

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

// The type that config.json gives for the weights; f32, as they are trained, where it gives none or one that they are
// not written in.
Result<DType> TypeOfResult(Env& env, const std::string& folder) {
  const std::string path = JoinPath(folder, kModelConfigFile);
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, MiB(64)));
  TEMPER_ASSIGN_OR_RETURN(const OrderedJson config, ParseOrderedPythonJson(text, path));
  const auto configured = ConfiguredDType(config, path);
  return configured.ok() ? configured->value_or(DType::kF32) : DType::kF32;
}

bool Averages(const FinishedRun& run) {
  return run.config.optimizer.ema_decay > 0;
}

// JoinWeights of what the run delivers.
Result<std::string> JoinResult(Env& env, const FinishedRun& run, const std::string& checkpoint, const std::string& to,
                               DType dtype, std::span<const ModelWeights::Entry> others = {}) {
  if (!Averages(run)) return JoinWeights(env, checkpoint, to, dtype, others);
  std::map<std::string, std::string> twins;
  for (const StoredWeight& trained : run.compiled.trains.Stored(run.model)) {
    for (const FileTensor& tensor : trained.source.tensors()) {
      for (const std::string& twin : tensor.aliases) twins[twin] = tensor.name;
    }
  }
  return JoinAverages(env, checkpoint, to, dtype, twins, others);
}

// The weights of a full run, with the other tensors of a multimodal model's folder. Returns ChecksumHex of the file.
Result<std::string> WriteModel(Env& env, const FinishedRun& run, const std::string& checkpoint, const std::string& to) {
  TEMPER_ASSIGN_OR_RETURN(const DType dtype, TypeOfResult(env, checkpoint));
  if (!run.model.facts().keeps_other_tensors) {
    const std::string whole = JoinPath(checkpoint, kModelWeightsFile);
    if (!env.IsFile(whole) || dtype != DType::kF32 || Averages(run)) return JoinResult(env, run, checkpoint, to, dtype);
    TEMPER_RETURN_IF_ERROR(VerifyWeights(env, checkpoint));
    TEMPER_ASSIGN_OR_RETURN(const FileDigest copied, CopyFileDurably(env, whole, to));
    return copied.checksum;
  }
  TEMPER_RETURN_IF_ERROR(VerifyWeights(env, run.model_folder));
  const std::vector<FileTensor> tensors = FileTensorsOf(run.model.StoredWeights());
  TEMPER_ASSIGN_OR_RETURN(const ModelWeights base, OpenModelWeights(env, run.model_folder, tensors));
  std::vector<ModelWeights::Entry> others;
  for (const std::string& name : UnusedTensors(base, tensors)) {
    others.push_back(base.Find(name));
  }
  return JoinResult(env, run, checkpoint, to, dtype, others);
}

// `config`: of the run. An adapter does not say in which form its base was kept.
void PrintNextCommands(std::string out, const RunConfig& config, bool lora, bool chats, bool judges) {
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  const std::string name = BaseName(out), kind = lora ? "merged" : "export";
  const std::string beside = name == "." || name == ".." ? kind : out + "-" + kind;
  const std::string& temper = ProgramName();  // as called: the lines are to be pasted
  std::string base;
  if (lora && config.model.base_dtype != BaseType::kAuto) {
    base += fmt::format(" --base_dtype {}", ToString(*FormatOf(config.model.base_dtype)));
  }
  if (lora && config.model.embedding_dtype != BaseType::kAuto) base += " --embedding_dtype int8";
  std::string next = "next:";
  if (judges) {
    next += fmt::format("\n  {} score {}{} --data FILE", temper, ShellWord(out), base);
  } else {
    if (chats) next += fmt::format("\n  {} chat {}{}", temper, ShellWord(out), base);
    next += fmt::format("\n  {} generate {}{} --prompt \"...\"", temper, ShellWord(out), base);
  }
  next += fmt::format("\n  {} export {} --output_dir {}", temper, ShellWord(out), ShellWord(beside));
  LogInfo(next);
}

// Whether the result, this checkpoint, is from after a divergence that lasted to the end.
bool HasDiverged(const FinishedRun& run, const std::string& checkpoint) {
  return run.progress.divergence.diverged() &&
         IsFromDivergence(run.progress, CheckpointStep(BaseName(checkpoint)).value_or(run.progress.step));
}

Status WriteRunCard(Env& env, const FinishedRun& run, const std::string& checkpoint) {
  const std::string& out = run.config.output.output_dir;
  ModelCardFacts facts{.config = run.config,
                       .architecture = run.architecture,
                       .parameters = run.compiled.parameters,
                       .trained = run.compiled.trainable_parameters,
                       .samples = run.samples,
                       .data_ranks = run.compiled.data_ranks(),
                       .progress = run.progress,
                       .diverged = HasDiverged(run, checkpoint),
                       .chats = run.chats};
  if (!run.compiled.trains.all_weights) {
    TEMPER_ASSIGN_OR_RETURN(facts.lora, ReadLoraConfig(env, JoinPath(out, kAdapterConfigFile)));
    facts.own_generation_config = env.IsFile(JoinPath(checkpoint, kGenerationConfigFile));
  }
  const auto history = ReadLossHistory(env, JoinPath(out, kMetricsFile));
  if (history.ok() && !history->training.empty()) facts.loss = history->training.back().second;
  return WriteModelCard(env, out, facts);
}

}  // namespace

Status FinishRun(Env& env, const FinishedRun& run) {
  const RunConfig::Output& output = run.config.output;
  const RunProgress& progress = run.progress;
  const Program& train = run.compiled.train();
  const std::string& out = output.output_dir;
  const bool lora = !run.compiled.trains.all_weights;
  TEMPER_ASSIGN_OR_RETURN(const std::string checkpoint, ResultCheckpoint(env, output, run.resume));
  TEMPER_ASSIGN_OR_RETURN(std::vector<std::string> files, CompanionFiles(env, lora ? run.model_folder : checkpoint));
  if (lora) {
    std::erase_if(files, [](const std::string& name) { return !IsTokenizerFile(name); });
    // An adapter's checkpoint has no tokenizer, but chat templates if they are not the base's, and generation settings
    // if they stop at the end of its turns.
    if (env.IsFile(JoinPath(checkpoint, kChatTemplateFile))) std::erase_if(files, IsInCompanionFolder);
    TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> own, CompanionFilesIn(env, checkpoint));
    for (const std::string& name : own) {
      if (std::count(files.begin(), files.end(), name) == 0) files.push_back(name);
    }
  }
  // Of a full run the weights as config.json says, as transformers writes them; their f32 masters are the checkpoint's.
  files.insert(files.begin(), std::string(lora ? kAdapterWeightsFile : kModelWeightsFile));
  if (lora && env.IsFile(JoinPath(checkpoint, kBaseFile))) files.push_back(kBaseFile);
  // The file that makes the folder an adapter or a model comes last.
  // Beside an adapter it names the classes of its head.
  if (!lora) std::erase(files, kModelConfigFile);
  files.push_back(lora ? kAdapterConfigFile : kModelConfigFile);
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
    if (name == kAdapterWeightsFile && Averages(run)) {
      TEMPER_ASSIGN_OR_RETURN(const std::string checksum,
                              JoinResult(env, run, checkpoint, JoinPath(out, name), DType::kF32));
      TEMPER_RETURN_IF_ERROR(WriteChecksums(env, out, {{name, checksum}}));
      continue;
    }
    if (name == kAdapterWeightsFile) TEMPER_RETURN_IF_ERROR(VerifyWeights(env, checkpoint));
    const std::string& from = env.IsFile(JoinPath(checkpoint, name)) ? checkpoint : run.model_folder;
    TEMPER_RETURN_IF_ERROR(CreateFolderFor(env, out, name));
    TEMPER_ASSIGN_OR_RETURN(const FileDigest copied, CopyFileDurably(env, JoinPath(from, name), JoinPath(out, name)));
    if (name != kAdapterWeightsFile) continue;
    TEMPER_RETURN_IF_ERROR(WriteChecksums(env, out, {{name, copied.checksum}}));
  }
  TEMPER_RETURN_IF_ERROR(WriteRunCard(env, run, checkpoint));
  if (run.resume && run.resume->state().step == progress.step) {
    const bool early = output.early_stopping_patience && progress.best.without_gain >= *output.early_stopping_patience;
    LogInfo(fmt::format("done        already, at step {}: nothing was left to train; {}. To go on raise {}",
                        progress.step, checkpoint,
                        early                         ? "early_stopping_patience"
                        : run.config.length.max_steps ? "max_steps"
                                                      : "num_train_epochs"));
  } else {
    PrintLossCurve(env, JoinPath(out, kMetricsFile));
    LogInfo(fmt::format("done        {}, {} in {}; {}", Counted(progress.step, "step"),
                        Counted(progress.tokens, "token"), ToString(Seconds{progress.seconds}), checkpoint));
  }
  if (Averages(run)) {
    LogInfo(fmt::format("average     {} holds the moving average (ema_decay {}); the weights themselves are in {}", out,
                        run.config.optimizer.ema_decay, checkpoint));
  }
  if (const BestEvaluation& best = progress.best; best.value) {
    LogInfo(fmt::format("best        {} {:.4f} at step {}", best.by.shown(), *best.value, best.step));
  }
  LogInfo(fmt::format("memory      {} planned and reserved, {} resident at the peak",
                      ToString(train.arena_bytes + train.host.bytes + TransferBuffers(train)),
                      ToString(PeakResidentMemory())));
  if (progress.divergence.diverged()) {
    TEMPER_ASSIGN_OR_RETURN(const std::string text, DescribeDivergedRun(env, run.config, progress, /*stopped=*/false));
    LogWarning(text);
  }
  if (!HasDiverged(run, checkpoint)) {
    PrintNextCommands(out, run.config, lora, run.chats, run.model.facts().classes > 0);
  }
  return OkStatus();
}

}  // namespace temper
