// The output folder of a run, locked by one process. No existing file is lost by accident: a run deletes the files that
// it replaces only when it is ready to begin, and a run that never begins leaves nothing behind.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "settings/run_config.h"

namespace temper {

class OutputFolder {
 public:
  // Applies --resume and --overwrite to the folder's content. Refuses a folder with a run in it unless one of them is
  // given. If another process trains in the folder, waits some seconds for it, then fails (kInUse). Changes nothing,
  // except that --resume finishes or removes an interrupted save. `config` need not be resolved; `env` must outlive the
  // result. `yaml`: the file that the settings were read from, if any.
  static Result<OutputFolder> Claim(Env& env, const RunConfig& config, const std::string& yaml);

  // The checkpoint to resume from: the newest if none was named; nullopt
  // if the folder has none yet (the run then starts from the beginning).
  const std::optional<std::string>& resume_from() const { return resume_from_; }

  // Whether `path`, links followed, is of the kind that runs write into `folder`: a file in it, or in a folder of
  // theirs.
  static bool Writes(const std::string& folder, const std::string& path);

  // Error if the run reads `path` but would delete it first (--overwrite), links followed.
  Status CheckKeeps(const char* what, const std::string& path) const;

  // Before the work: checks that the folder can be created and written to,
  // has room for `bytes`, and that no other run has appeared since Claim.
  Status Prepare(Bytes bytes);
  // Once the data is tokenized: the token files that the run uses. Checks that there still is room for those bytes.
  // Begin removes the folder's other token files, unless --data_cache names the folder: there nothing is ever deleted.
  Status UseTokens(std::vector<std::string> files);

  // Of the first of several ranks, after Prepare: leaves a mark in the folder that only this start of the run has.
  Result<std::string> Mark();
  // Of another rank: whether its machine sees the folder with that mark.
  static Status CheckSeen(Env& env, const std::string& path, const std::string& mark);

  // When the run is ready: --overwrite removes an earlier run's files (checkpoints, metrics, adapter, ...). If the run
  // resumes from step `step`, removes its earlier result and renames checkpoints of later steps, which would otherwise
  // count as the newest.
  Status Begin(int64_t step);

 private:
  OutputFolder(Env& env, const RunConfig& config, std::string yaml);
  // Checks the contents again once it has the lock.
  Status TakeLock();
  Status CheckContents() const;
  Status CheckEarlierRun(const std::vector<std::string>& names) const;
  Status CheckSettingsFile(const std::vector<std::string>& names) const;
  Status FindCheckpoint();
  Status SetAsideAfter(int64_t step) const;
  void LogDeleted(const std::vector<std::string>& names) const;
  bool IsDataCache() const;

  Env* env_;
  std::string yaml_;  // the file that the settings were read from; may be empty
  std::string path_;
  RunConfig::Output output_;
  std::string data_cache_;
  TrainMethod method_;
  std::vector<std::string> sources_;  // folders that the run starts from
  std::optional<std::string> resume_from_;
  bool existed_ = false;             // when it was claimed
  std::unique_ptr<FileLock> lock_;   // null also where files cannot be locked
  Bytes needed_;                     // what Begin leaves must have room for
  std::vector<std::string> tokens_;  // UseTokens

  // Files and folders created for the run: removed if it never
  // begins. Declared after the lock, to be destroyed before it.
  struct Made {
    explicit Made(Env* where) : env(where) {}
    ~Made();
    Env* const env;
    std::string lock_file;             // empty: it existed
    std::vector<std::string> folders;  // the innermost first
  };
  std::unique_ptr<Made> made_;  // null once the run has begun
};

}  // namespace temper
