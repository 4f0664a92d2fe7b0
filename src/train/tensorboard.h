// TensorBoardWriter: scalars as an event file that TensorBoard reads, with the folder layout and tags of transformers.
// One thread at a time. The log is not essential: callers warn about its errors and continue.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/status.h"

namespace temper {

class TensorBoardWriter {
 public:
  // Creates OUTPUT_DIR/runs/Nov20_11-05-59_HOST/events.out.tfevents.TIME.HOST.PID.0. `start`: seconds since 1970.
  // `resume_step`: the run continues after this step, at the end of the newest event file; TensorBoard hides earlier
  // events of later steps. An incomplete record, left by a killed process, is cut off; a damaged file stays as it is,
  // and a new one begins beside it. `env` must outlive the result.
  static Result<std::unique_ptr<TensorBoardWriter>> Create(Env& env, const std::string& output_dir, double start,
                                                           std::optional<int64_t> resume_step = std::nullopt);

  // `name` is as in metrics.jsonl: "loss" becomes train/loss,
  // "eval_loss" eval/loss. The data has reached the system on return.
  Status AddScalar(std::string_view name, int64_t step, double value, double wall_time);

  const std::string& path() const { return path_; }

 private:
  TensorBoardWriter(Env& env, std::string path, std::unique_ptr<WritableFile> file, int64_t size);
  Status Append(std::string_view records);

  Env& env_;
  const std::string path_;
  std::unique_ptr<WritableFile> file_;
  int64_t size_;       // of whole records
  bool torn_ = false;  // a part of one may stand behind them, where a write failed: TensorBoard would read no further
};

// The parts of the format, for tests. Length, its checksum, the data, its checksum.
std::string EventRecord(std::string_view data);
// First event of a file; an Event message with file_version "brain.Event:2".
std::string VersionEvent(double wall_time);
std::string ScalarEvent(double wall_time, int64_t step, std::string_view tag, float value);
// A session that starts at `step`: earlier events of later steps become invalid.
std::string SessionStartEvent(double wall_time, int64_t step);
std::string TensorBoardTag(std::string_view name);

}  // namespace temper
