#include "run/output_folder.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "base/quantity.h"
#include "base/unique_name.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/training_state.h"
#include "checkpoint/weight_checksums.h"
#include "data/token_cache.h"
#include "format/lora_config.h"
#include "run/model_card.h"
#include "run/reference_scores.h"
#include "train/metrics.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

constexpr char kLockFile[] = ".temper.lock";
// How long to wait for a process that holds the lock and may be dying: after the launcher of a run was killed, its
// ranks end within a second or two, or save first.
constexpr std::chrono::milliseconds kPatience{5000}, kBetweenTries{100};
// Suffix of a checkpoint after the step from which the run was resumed: nothing reads it under this name.
constexpr char kAbandonedSuffix[] = ".abandoned";

// Files that runs write into their output folder, besides checkpoints.
constexpr const char* kRunFiles[] = {kRunConfigFile, kMetricsFile,        "trace.json",       "runs",
                                     kReferenceFile, kAdapterWeightsFile, kAdapterConfigFile, kModelWeightsFile,
                                     kChecksumsFile};

bool IsRunFile(const std::string& name) {
  return CheckpointStep(name.substr(0, name.find(kAbandonedSuffix))) ||
         std::find(std::begin(kRunFiles), std::end(kRunFiles), name) != std::end(kRunFiles);
}

// Whether two paths are the same, links followed.
bool Same(const std::string& a, const std::string& b) {
  std::error_code missing;
  return fs::equivalent(a, b, missing);
}

// Follows links as far as the path exists.
std::string Canonical(const std::string& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return error ? path : found.string();
}

Result<Bytes> TreeSize(Env& env, const std::string& path) {
  if (env.IsFolder(path)) {
    Bytes sum{};
    TEMPER_ASSIGN_OR_RETURN(const auto names, env.List(path));
    for (const std::string& name : names) {
      TEMPER_ASSIGN_OR_RETURN(const Bytes size, TreeSize(env, JoinPath(path, name)));
      sum += size;
    }
    return sum;
  }
  if (!env.IsFile(path)) return Bytes{};
  TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(path));
  return file->size();
}

}  // namespace

OutputFolder::OutputFolder(Env& env, const RunConfig& config, std::string yaml)
    : env_(&env),
      yaml_(std::move(yaml)),
      path_(config.output.output_dir),
      output_(config.output),
      data_cache_(config.data.data_cache),
      method_(config.model.method),
      sources_({config.model.model, config.model.adapter}),
      made_(std::make_unique<Made>(&env)) {}

OutputFolder::Made::~Made() {
  if (!lock_file.empty() && !env->RemoveFile(lock_file).ok()) return;
  for (const std::string& folder : folders) {
    if (!env->IsFolder(folder)) continue;
    const auto names = env->List(folder);
    if (!names.ok() || !names->empty() || !env->RemoveTree(folder).ok()) return;
  }
}

Result<OutputFolder> OutputFolder::Claim(Env& env, const RunConfig& config, const std::string& yaml) {
  OutputFolder folder(env, config, yaml);
  folder.existed_ = env.IsFolder(folder.path_);
  if (folder.existed_) {
    TEMPER_RETURN_IF_ERROR(folder.CheckContents());  // creates no lock file in a refused folder
    TEMPER_RETURN_IF_ERROR(folder.TakeLock());
  }
  const RunConfig::Model& m = config.model;
  for (const auto& [what, path] : {std::pair{"model", m.model}, {"base", m.base}, {"adapter", m.adapter}}) {
    TEMPER_RETURN_IF_ERROR(folder.CheckKeeps(what, path));
  }
  for (const auto& [what, sources] : {std::pair{"data", &config.data.data}, {"eval_data", &config.data.eval_data}}) {
    for (const DataSource& source : *sources) TEMPER_RETURN_IF_ERROR(folder.CheckKeeps(what, source.path));
  }
  if (folder.output_.resume) TEMPER_RETURN_IF_ERROR(folder.FindCheckpoint());
  return folder;
}

Status OutputFolder::CheckContents() const {
  TEMPER_ASSIGN_OR_RETURN(const auto names, env_->List(path_));
  TEMPER_RETURN_IF_ERROR(CheckSettingsFile(names));
  return CheckEarlierRun(names);
}

// A run saves its settings in the folder, and would overwrite a user's file
// of that name. If a run's metrics are there, the file is the run's own.
Status OutputFolder::CheckSettingsFile(const std::vector<std::string>& names) const {
  if (yaml_.empty() || !Same(yaml_, JoinPath(path_, kRunConfigFile))) return OkStatus();
  if (std::count(names.begin(), names.end(), kMetricsFile)) return OkStatus();
  return InvalidArgument(
      fmt::format("{} is in output_dir ({}), where the run would write its own {}: rename it, or choose "
                  "another output_dir",
                  yaml_, path_, kRunConfigFile));
}

Status OutputFolder::CheckEarlierRun(const std::vector<std::string>& names) const {
  if (output_.resume || std::none_of(names.begin(), names.end(), IsRunFile)) return OkStatus();
  if (!output_.overwrite) {
    return InvalidArgument(fmt::format(
        "{} holds an earlier run: continue it with --resume, replace it with --overwrite, or choose another "
        "--output_dir",
        path_));
  }
  if (std::count(names.begin(), names.end(), kRunConfigFile)) return OkStatus();
  const auto first = std::find_if(names.begin(), names.end(), IsRunFile);
  return InvalidArgument(
      fmt::format("{} holds {}, which is not from a run of Temper (there is no {}): --overwrite does not delete it. "
                  "Choose another --output_dir",
                  path_, *first, kRunConfigFile));
}

bool OutputFolder::Writes(const std::string& folder, const std::string& path) {
  const fs::path inside = fs::path(Canonical(path)).lexically_relative(Canonical(folder));
  if (inside.empty() || *inside.begin() == "..") return false;
  return !inside.has_parent_path() || IsRunFile(inside.begin()->string());
}

Status OutputFolder::CheckKeeps(const char* what, const std::string& path) const {
  if (!output_.overwrite || path.empty() || !env_->IsFolder(path_)) return OkStatus();
  const std::string inner = Canonical(path), outer = Canonical(path_);
  if (inner != outer && !inner.starts_with(outer + "/")) return OkStatus();
  return InvalidArgument(
      fmt::format("overwrite would delete the {} of this run: {} is in output_dir ({}). Choose another output_dir",
                  what, path, path_));
}

Status OutputFolder::TakeLock() {
  if (lock_) return OkStatus();
  const std::string path = JoinPath(path_, kLockFile);
  bool was_there = env_->IsFile(path);
  auto lock = env_->Lock(path);
  if (lock.status().code() == StatusCode::kInUse) {
    LogInfo(fmt::format("waiting     another process has {}: a few seconds, in case it is ending", path_));
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (lock.status().code() == StatusCode::kInUse && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(kBetweenTries);
      was_there = env_->IsFile(path);
      lock = env_->Lock(path);
    }
  }
  if (lock.ok()) {
    lock_ = std::move(*lock);
    if (!was_there) made_->lock_file = path;
    return CheckContents();  // another run may have begun and ended since the last check
  }
  if (lock.status().code() == StatusCode::kInUse) {
    return InUse(
        fmt::format("another process is training into {}: wait until it ends, or choose another --output_dir", path_));
  }
  return lock.status().WithContext(fmt::format("the output folder {} cannot be used", path_));
}

Status OutputFolder::FindCheckpoint() {
  // First finishes or removes an interrupted save.
  if (env_->IsFolder(path_)) TEMPER_RETURN_IF_ERROR(PrepareOutputFolder(*env_, path_, Bytes{}));
  TEMPER_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(*env_, path_));
  if (output_.resume->empty()) {
    if (!checkpoints.empty()) {
      resume_from_ = checkpoints.back().path;
    } else {
      LogInfo(fmt::format("resume      {} has no checkpoint yet: starting from the beginning", path_));
    }
    return OkStatus();
  }
  // As given, or as a name in the output folder.
  resume_from_ = *output_.resume;
  while (resume_from_->size() > 1 && resume_from_->ends_with('/')) resume_from_->pop_back();
  if (const std::string inside = JoinPath(path_, *resume_from_); !env_->IsFolder(*resume_from_)) {
    if (env_->IsFolder(inside)) resume_from_ = inside;
  }
  if (!env_->IsFolder(*resume_from_)) {
    std::string there;
    for (const CheckpointEntry& entry : checkpoints) {
      if (!there.empty()) there += ", ";
      there += BaseName(entry.path);
    }
    return NotFound(fmt::format("--resume={}: there is no such folder, and {} has {}", *output_.resume, path_,
                                there.empty() ? "no checkpoint" : there));
  }
  if (!checkpoints.empty() && !Same(FolderOf(*resume_from_), path_)) {
    return InvalidArgument(
        fmt::format("--resume={} is from another output folder, but {} has its own checkpoints: choose an empty "
                    "--output_dir, or continue from these with --resume alone",
                    *resume_from_, path_));
  }
  return OkStatus();
}

Status OutputFolder::Prepare(Bytes bytes) {
  std::vector<std::string> missing;
  for (std::string folder = path_; !env_->IsFolder(folder); folder = FolderOf(folder)) missing.push_back(folder);
  made_->folders = std::move(missing);
  if (Status s = env_->CreateFolders(path_); !s.ok()) {
    return s.WithContext(fmt::format("the output folder {} cannot be used", path_));
  }
  TEMPER_RETURN_IF_ERROR(TakeLock());
  TEMPER_ASSIGN_OR_RETURN(const auto names, env_->List(path_));
  if (!existed_ && output_.resume && std::any_of(names.begin(), names.end(), IsRunFile)) {
    return InUse(
        fmt::format("another run wrote into {} while this one was starting: restart this one to continue from its "
                    "checkpoints, or choose another --output_dir",
                    path_));
  }
  if (output_.overwrite) {
    for (const std::string& name : names) {
      if (!IsRunFile(name)) continue;
      TEMPER_ASSIGN_OR_RETURN(const Bytes freed, TreeSize(*env_, JoinPath(path_, name)));
      bytes = std::max(bytes - freed, Bytes{});
    }
  }
  needed_ = bytes;
  return PrepareOutputFolder(*env_, path_, bytes);
}

bool OutputFolder::IsDataCache() const {
  std::error_code missing;
  return std::filesystem::equivalent(data_cache_, path_, missing);
}

Status OutputFolder::UseTokens(std::vector<std::string> files) {
  tokens_ = std::move(files);
  const Bytes unused = IsDataCache() ? Bytes{} : TokenCache::SizeOfOthers(*env_, path_, tokens_);
  return CheckFreeSpace(*env_, path_, std::max(needed_ - unused, Bytes{}))
      .WithContext("before training: one checkpoint must fit beside the tokens, which --data_cache keeps elsewhere");
}

// In the lock file, which is there for the time of the run. It is not replaced: that would let go of the lock.
Result<std::string> OutputFolder::Mark() {
  const std::string mark = UniqueName();
  TEMPER_ASSIGN_OR_RETURN(const auto file, env_->OpenForWrite(JoinPath(path_, kLockFile)));
  TEMPER_RETURN_IF_ERROR(file->Append(mark));
  TEMPER_RETURN_IF_ERROR(file->Close());
  return mark;
}

Status OutputFolder::CheckSeen(Env& env, const std::string& path, const std::string& mark) {
  if (const auto seen = ReadTextFile(env, JoinPath(path, kLockFile), KiB(1)); seen.ok() && *seen == mark) {
    return OkStatus();
  }
  return InvalidArgument(
      fmt::format("--output_dir {}: this machine does not see the folder that the first rank's machine has under this "
                  "name; choose one on a file system that all machines share",
                  path));
}

// What overwrite takes away: "the run of 20:55 (3 checkpoints)", by the time of its last metrics.
void OutputFolder::LogDeleted(const std::vector<std::string>& names) const {
  if (std::none_of(names.begin(), names.end(), IsRunFile)) return;
  const auto checkpoints = std::count_if(names.begin(), names.end(),
                                         [](const std::string& name) { return CheckpointStep(name).has_value(); });
  std::string of;
  if (const auto metrics = env_->OpenForRead(JoinPath(path_, kMetricsFile)); metrics.ok()) {
    const std::time_t seconds = (*metrics)->version().modified_ns / 1'000'000'000;
    std::tm time = {};
    if (seconds > 0 && localtime_r(&seconds, &time) != nullptr) of = fmt::format(" of {:%Y-%m-%d %H:%M}", time);
  }
  LogInfo(fmt::format("overwrite   deletes the run{} in {} ({})", of, path_, Counted(checkpoints, "checkpoint")));
}

Status OutputFolder::Begin(int64_t step) {
  made_->lock_file.clear();
  made_->folders.clear();
  if (!IsDataCache()) TokenCache::RemoveOthers(*env_, path_, tokens_);
  if (output_.overwrite) {
    TEMPER_ASSIGN_OR_RETURN(const auto names, env_->List(path_));
    // A full run's result is a whole model folder; beside an adapter lie its tokenizer, generation settings and, of one
    // that judges, its classes.
    const bool has_model = std::count(names.begin(), names.end(), kModelWeightsFile) > 0;
    const bool has_adapter = std::count(names.begin(), names.end(), kAdapterWeightsFile) > 0;
    LogDeleted(names);
    for (const std::string& name : names) {
      const bool of_result =
          (has_model && IsCompanionFile(name)) ||
          (has_adapter && (IsTokenizerFile(name) || name == kGenerationConfigFile || name == kModelConfigFile)) ||
          ((has_model || has_adapter) && name == kCompanionFolder) ||
          (name == kModelCardFile && IsOwnModelCard(*env_, JoinPath(path_, name)));
      if (!IsRunFile(name) && !of_result) continue;
      TEMPER_RETURN_IF_ERROR(env_->RemoveTree(JoinPath(path_, name)));
    }
    return OkStatus();
  }
  if (!output_.resume) return OkStatus();
  TEMPER_RETURN_IF_ERROR(SetAsideAfter(step));
  // A result from an earlier end of this run would look like the continued run's.
  // The file that makes the folder an adapter or a model is removed first, so that
  // nobody sees half a result. Folders that the run starts from are never touched.
  for (const std::string& source : sources_) {
    if (!source.empty() && Same(source, path_)) return OkStatus();
  }
  const auto result = method_ == TrainMethod::kLora ? std::pair{kAdapterConfigFile, kAdapterWeightsFile}
                                                    : std::pair{kModelConfigFile, kModelWeightsFile};
  for (const char* name : {result.first, result.second, kChecksumsFile}) {
    const std::string path = JoinPath(path_, name);
    if (env_->IsFile(path)) TEMPER_RETURN_IF_ERROR(env_->RemoveFile(path));
  }
  return OkStatus();
}

Status OutputFolder::SetAsideAfter(int64_t step) const {
  TEMPER_ASSIGN_OR_RETURN(const auto checkpoints, ListCheckpoints(*env_, path_));
  for (const CheckpointEntry& entry : checkpoints) {
    if (entry.step <= step) continue;
    std::string aside = entry.path + kAbandonedSuffix;
    for (int n = 2; env_->IsFolder(aside); ++n) aside = fmt::format("{}{}-{}", entry.path, kAbandonedSuffix, n);
    TEMPER_RETURN_IF_ERROR(env_->Rename(entry.path, aside));
    LogWarning(
        fmt::format("{} is later than the checkpoint to resume from: renamed to {}; delete it if it is not needed",
                    entry.path, BaseName(aside)));
  }
  return env_->SyncFolder(path_);
}

}  // namespace temper
