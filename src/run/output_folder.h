// The output folder of a run, held by one process: nothing that is there already is lost by accident. What a run is to
// replace is deleted last of all, when the new run is ready to begin, and one that never begins leaves nothing behind.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "config/run_config.h"

namespace temper {

class OutputFolder {
 public:
  // Decides what --resume and --overwrite mean for what lies in the folder. A folder with a run in it is refused unless
  // the user said one of them. One in which another process trains is waited for some seconds, then refused (kInUse).
  // Changes nothing but that, with --resume, an interrupted save is finished or removed. `config` need not be
  // resolved; `env` must outlive the result. `yaml`: the file that the settings were read from, if any.
  static Result<OutputFolder> Claim(Env& env, const RunConfig& config, const std::string& yaml);

  // The checkpoint to go on from: the newest where none was named; nothing where the folder has none yet (the run then
  // starts from the beginning).
  const std::optional<std::string>& resume_from() const { return resume_from_; }

  // Error where the run reads `path` and would delete it first (--overwrite), links followed.
  Status CheckKeeps(const char* what, const std::string& path) const;

  // Before the work: the folder can be made and written to, has room for `bytes`, and still holds no other run where
  // Claim found none.
  Status Prepare(Bytes bytes);

  // When the run is ready: --overwrite removes what an earlier run wrote (checkpoints, metrics, adapter, ...) and
  // nothing else. Going on from step `step`, an earlier result of this run is removed, and checkpoints of later steps,
  // which would be taken for the newest, are set aside under another name.
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

  Env* env_;
  std::string yaml_;  // the file that the settings were read from; may be empty
  std::string path_;
  RunConfig::Output output_;
  TrainMethod method_;
  std::vector<std::string> sources_;  // folders that the run starts from
  std::optional<std::string> resume_from_;
  std::unique_ptr<FileLock> lock_;

  // What was not there before the run: removed where it never begins. Before the lock is let go, hence behind it.
  struct Made {
    explicit Made(Env* where) : env(where) {}
    ~Made();
    Env* const env;
    std::string lock_file;             // empty: it was there
    std::vector<std::string> folders;  // the innermost first
  };
  std::unique_ptr<Made> made_;  // of nothing once the run has begun
};

}  // namespace temper
