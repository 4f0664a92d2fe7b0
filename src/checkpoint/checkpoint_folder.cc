#include "checkpoint/checkpoint_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/log.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_staging.h"
#include "checkpoint/manifest.h"

namespace temper {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr char kProbeFile[] = ".temper_can_write";

// The step of "checkpoint-<step>" + `suffix`; nothing for any other name ("checkpoint-007" among them: no two folders
// may have one step).
std::optional<int64_t> StepOf(std::string_view name, std::string_view suffix) {
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix) || name.size() <= kPrefix.size() + suffix.size()) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - suffix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  if (digits.size() > 1 && (digits[0] == '0' || digits[0] == '+')) return std::nullopt;
  return step;
}

// A save that was interrupted after its last file was synced and before (or amid) the renames has everything: commit
// it. All other temporaries go.
Status TidyUp(Env& env, const std::string& output_dir) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.List(output_dir));
  for (const std::string& name : names) {
    const std::string path = JoinPath(output_dir, name);
    const auto step = StepOf(name, kStagingSuffix);
    if (!step) continue;
    const std::string target = CheckpointFolder(output_dir, *step);
    if (!env.IsFolder(target) && CheckpointReader::Open(env, path).ok()) {
      TEMPER_RETURN_IF_ERROR(env.Rename(path, target));
      TEMPER_RETURN_IF_ERROR(env.SyncFolder(output_dir));
    } else {
      TEMPER_RETURN_IF_ERROR(env.RemoveTree(path));
    }
  }
  for (const std::string& name : names) {
    if (StepOf(name, kRetiredSuffix)) TEMPER_RETURN_IF_ERROR(env.RemoveTree(JoinPath(output_dir, name)));
  }
  return OkStatus();
}

Status ProveWritable(Env& env, const std::string& output_dir) {
  const std::string probe = JoinPath(output_dir, kProbeFile);
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForWrite(probe));
  TEMPER_RETURN_IF_ERROR(file->Append("x"));
  TEMPER_RETURN_IF_ERROR(file->Sync());
  TEMPER_RETURN_IF_ERROR(file->Close());
  TEMPER_RETURN_IF_ERROR(env.Rename(probe, probe + ".2"));
  TEMPER_RETURN_IF_ERROR(env.RemoveFile(probe + ".2"));
  return env.SyncFolder(output_dir);
}

}  // namespace

std::string CheckpointFolder(const std::string& output_dir, int64_t step) {
  return JoinPath(output_dir, fmt::format("{}{}", kPrefix, step));
}

std::optional<int64_t> CheckpointStep(std::string_view name) {
  return StepOf(name, "");
}

Result<std::vector<CheckpointEntry>> ListCheckpoints(Env& env, const std::string& output_dir) {
  std::vector<CheckpointEntry> found;
  if (!env.IsFolder(output_dir)) return found;
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.List(output_dir));
  for (const std::string& name : names) {
    const auto step = CheckpointStep(name);
    const std::string path = JoinPath(output_dir, name);
    if (step && env.IsFile(JoinPath(path, kManifestFile))) found.push_back({*step, path});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

namespace {

// What a checkpoint's evaluation is compared by.
RunState::BestBy JudgedBy(const RunState& state) {
  if (state.best_by) return *state.best_by;
  return {.metric = "loss", .greater_is_better = false, .value = state.eval_loss, .best = state.best_eval_loss};
}

}  // namespace

Result<std::optional<CheckpointEntry>> BestCheckpoint(Env& env, const std::string& output_dir) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> found, ListCheckpoints(env, output_dir));
  std::optional<CheckpointEntry> best;
  std::optional<RunState::BestBy> newest, of_best;
  for (auto entry = found.rbegin(); entry != found.rend(); ++entry) {
    const auto manifest = ReadManifest(env, entry->path);
    if (!manifest.ok()) continue;
    const RunState::BestBy by = JudgedBy(manifest->state);
    if (!newest) newest = by;
    if (!by.value || by.metric != newest->metric || by.greater_is_better != newest->greater_is_better) continue;
    // From the newest to the oldest: of equals the earlier one.
    if (best && (by.greater_is_better ? *by.value < *of_best->value : *by.value > *of_best->value)) continue;
    best = *entry;
    of_best = by;
  }
  return best;
}

Status CheckFreeSpace(Env& env, const std::string& folder, Bytes need) {
  // The file system's own tables and what metrics and logs add meanwhile.
  const Bytes margin = MiB(1) + Bytes{need.v / 100};
  TEMPER_ASSIGN_OR_RETURN(const Bytes free, env.FreeSpace(folder));
  if (free >= need + margin) return OkStatus();
  return IoError(fmt::format("{} needs {} on its disk but only {} are free. Free some space or choose another folder",
                             folder, ToString(need + margin), ToString(free)));
}

Status PrepareOutputFolder(Env& env, const std::string& output_dir, Bytes one_checkpoint) {
  const std::string what = fmt::format("the output folder {} cannot be used", output_dir);
  if (Status s = env.CreateFolders(output_dir); !s.ok()) return s.WithContext(what);
  if (Status s = ProveWritable(env, output_dir); !s.ok()) return s.WithContext(what);
  if (Status s = TidyUp(env, output_dir); !s.ok()) return s.WithContext(what);
  return CheckFreeSpace(env, output_dir, one_checkpoint).WithContext("before training: one checkpoint must fit");
}

Status RotateCheckpoints(Env& env, const std::string& output_dir, int64_t keep) {
  TEMPER_CHECK(keep >= 1) << "the newest checkpoint is never deleted";
  TEMPER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> found, ListCheckpoints(env, output_dir));
  if (static_cast<int64_t>(found.size()) <= keep) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const auto best, BestCheckpoint(env, output_dir));
  for (size_t i = 0; i + static_cast<size_t>(keep) < found.size(); ++i) {
    const std::string& path = found[i].path;
    if (best && best->step == found[i].step) continue;
    if (const auto manifest = ReadManifest(env, path); !manifest.ok()) {
      LogWarning(fmt::format("{} is left as it is: {}", path, manifest.status().message()));
      continue;
    }
    TEMPER_RETURN_IF_ERROR(env.RemoveTree(path + std::string(kRetiredSuffix)));
    TEMPER_RETURN_IF_ERROR(env.Rename(path, path + std::string(kRetiredSuffix)));
    TEMPER_RETURN_IF_ERROR(env.RemoveTree(path + std::string(kRetiredSuffix)));
  }
  return env.SyncFolder(output_dir);
}

}  // namespace temper
