// MetricsLog: metrics.jsonl, one JSON object per line, for people, scripts and plots.
//
//   training    {"step", "epoch", "loss", "grad_norm", "learning_rate", "tokens", "tokens_per_second", "mfu",
//                "device_peak_bytes", "seconds"}; with several ranks also "ranks", in their order:
//                [{"kernels", "collectives", "waiting", "beside", "resident_peak_bytes"}, ...]
//   both        what the objective reports beside the loss: "rewards/margins", "eval_rewards/margins"
//   evaluation  {"step", "epoch", "eval_loss", "eval_tokens", "eval_seconds"}
//
// Numbers are printed as the shortest text that reads back to the same
// double; unknown, infinite and NaN are null. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/named_number.h"
#include "base/status.h"
#include "program/program.h"

namespace temper {

inline constexpr char kMetricsFile[] = "metrics.jsonl";  // in the output folder

// A rank's activity since the last row, as shares of the time of its steps: its compute
// thread in kernels, in blocking collectives (including the wait for other ranks), and
// in neither: mostly waiting for background collectives, which took `beside` in total.
struct RankRow {
  double kernels = 0, collectives = 0, waiting = 0;
  double beside = 0;
  int64_t resident_peak_bytes = 0;  // of its process, including peers' memory that it has read
};

// For a step with values outside the device: "host_peak_bytes" and "bytes_moved", by link ("host_to_device").
struct TiersRow {
  int64_t host_peak_bytes = 0;
  std::vector<LinkTraffic> moved;  // per step
};

struct TrainingRow {
  int64_t step = 0;                  // optimizer steps done, from 1
  double epoch = 0;                  // passes over the data done, with fraction
  double loss = 0;                   // mean over the supervised tokens (task dpo: pairs) since the last row
  std::vector<NamedNumber> reports;  // what the objective reports beside it, in the same way
  double grad_norm = 0;
  double learning_rate = 0;  // of this step's update
  int64_t tokens = 0;        // real tokens trained on since the start of the run, without padding
  double tokens_per_second = 0;
  std::optional<double> mfu;  // 0 to 1; absent if the machine's peak is unknown
  int64_t device_peak_bytes = 0;
  std::optional<TiersRow> tiers;
  double seconds = 0;          // spent in steps since the start of the run, over all its resumptions
  std::vector<RankRow> ranks;  // empty: there is only one
};

struct EvaluationRow {
  int64_t step = 0;
  double epoch = 0;
  double eval_loss = 0;
  std::vector<NamedNumber> reports;  // each as "eval_<name>"
  int64_t eval_tokens = 0;           // supervised
  double eval_seconds = 0;
};

// One line, without its end.
std::string ToJsonLine(const TrainingRow& row);
std::string ToJsonLine(const EvaluationRow& row);

class MetricsLog {
 public:
  // Appends to `path`; creates it if missing.
  static Result<std::unique_ptr<MetricsLog>> Open(Env& env, const std::string& path);
  ~MetricsLog();

  // A row has reached the system when Write returns: other programs see it, and a killed process loses nothing. A
  // failed write (disk full) leaves no part of a row in the file.
  Status Write(const TrainingRow& row);
  Status Write(const EvaluationRow& row);
  // Makes all rows survive a power failure. Call before saving a checkpoint, which relies on the rows of its steps.
  Status Sync();

 private:
  MetricsLog(Env& env, std::string path, std::unique_ptr<WritableFile> file, int64_t size);
  Status WriteLine(std::string line);

  Env& env_;
  const std::string path_;
  std::unique_ptr<WritableFile> file_;
  int64_t size_;  // of the complete rows
  bool torn_ = false;
};

// Removes the rows that a run resumed from `step` will write again: those of later steps, the evaluation of `step` if
// the checkpoint is not `evaluated`, and a last line truncated by a crash. A missing file is fine. A line in the middle
// that is not a row is an error naming it.
Status TruncateMetrics(Env& env, const std::string& path, int64_t step, bool evaluated);

// The loss rows of a metrics.jsonl, for drawing (train/loss_curve.h).
struct LossHistory {
  std::vector<std::pair<int64_t, double>> training;    // step, loss
  std::vector<std::pair<int64_t, double>> evaluation;  // step, eval_loss
};
Result<LossHistory> ReadLossHistory(Env& env, const std::string& path);

}  // namespace temper
