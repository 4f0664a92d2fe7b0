// The checkpoint folders of an output folder: OUT/checkpoint-<step>, committed when it has its manifest. During a save,
// and after an interrupted one, there is a OUT/checkpoint-<step>.tmp that nothing reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"

namespace temper {

std::string CheckpointFolder(const std::string& output_dir, int64_t step);
// The step of a checkpoint folder's name; nullopt for any other name.
std::optional<int64_t> CheckpointStep(std::string_view name);

struct CheckpointEntry {
  int64_t step = 0;
  std::string path;
};
// Committed checkpoints by step, oldest first. A missing OUT has none.
Result<std::vector<CheckpointEntry>> ListCheckpoints(Env& env, const std::string& output_dir);
// The one whose evaluation is the best by its manifest (the earlier of equals), among those that are compared by the
// same number as the newest; nullopt if none was evaluated.
Result<std::optional<CheckpointEntry>> BestCheckpoint(Env& env, const std::string& output_dir);

// Before a run writes anything: OUT exists or can be made, a file can be written, synced and renamed in it, and it has
// room for `one_checkpoint`. Removes the remains of interrupted saves. One process at a time may do so.
Status PrepareOutputFolder(Env& env, const std::string& output_dir, Bytes one_checkpoint);
// Error if the disk of `folder` has less than `need` (with a margin for the file system's own tables) free.
Status CheckFreeSpace(Env& env, const std::string& folder, Bytes need);

// Deletes committed checkpoints beyond the newest `keep`, but never the best one, nor one whose manifest cannot be
// read. REQUIRES: keep >= 1. Deleting starts with a rename to .tmp: a half-deleted folder is never taken for a
// checkpoint.
Status RotateCheckpoints(Env& env, const std::string& output_dir, int64_t keep);

}  // namespace temper
