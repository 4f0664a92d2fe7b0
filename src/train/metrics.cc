#include "train/metrics.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "format/json.h"

namespace temper {
namespace {

std::string Number(double v) {
  return std::isfinite(v) ? fmt::format("{}", v) : "null";
}

// Shares to a thousandth: they are for people, once per rank.
std::string RanksOf(const TrainingRow& row) {
  if (row.ranks.empty()) return "";
  std::string text;
  for (const RankRow& r : row.ranks) {
    text += fmt::format(R"({}{{"kernels": {:.3f}, "collectives": {:.3f}, "waiting": {:.3f}, "beside": {:.3f}, )"
                        R"("resident_peak_bytes": {}}})",
                        text.empty() ? "" : ", ", r.kernels, r.collectives, r.waiting, r.beside, r.resident_peak_bytes);
  }
  return ", \"ranks\": [" + text + "]";
}

// Takes the next line off `text`; `complete`: it ends in a newline.
std::string_view TakeLine(std::string_view& text, bool& complete) {
  const size_t end = text.find('\n');
  complete = end != text.npos;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(complete ? end + 1 : text.size());
  return line;
}

// The row, or null if the line is not one.
Json ParseRow(std::string_view line) {
  const Result<Json> row = ParseJson(line, "row");
  if (!row.ok() || !row->is_object()) return nullptr;
  const auto step = row->find("step");
  return step != row->end() && step->is_number_integer() ? *row : Json();
}

Status NotARow(const std::string& path, int64_t line) {
  return Corrupt(
      fmt::format("{} line {} is not a row of metrics (a JSON object with a step): remove the line, or move the "
                  "file away",
                  path, line));
}

std::string ReportsOf(std::span<const NamedNumber> reports, const char* prefix) {
  std::string text;
  for (const NamedNumber& r : reports) text += fmt::format(R"(, "{}{}": {})", prefix, r.name, Number(r.value));
  return text;
}

std::string TiersOf(const TrainingRow& r) {
  if (!r.tiers) return "";
  std::string links;
  for (const LinkTraffic& t : r.tiers->moved) {
    links += fmt::format(R"({}"{}_to_{}": {})", links.empty() ? "" : ", ", ToString(t.from), ToString(t.to), t.bytes.v);
  }
  return fmt::format(R"(, "host_peak_bytes": {}, "bytes_moved": {{{}}})", r.tiers->host_peak_bytes, links);
}

}  // namespace

std::string ToJsonLine(const TrainingRow& r) {
  return fmt::format(R"({{"step": {}, "epoch": {}, "loss": {}{}, "grad_norm": {}, "learning_rate": {}, "tokens": {}, )"
                     R"("tokens_per_second": {}, "mfu": {}, "device_peak_bytes": {}{}, "seconds": {}{}}})",
                     r.step, Number(r.epoch), Number(r.loss), ReportsOf(r.reports, ""), Number(r.grad_norm),
                     Number(r.learning_rate), r.tokens, Number(r.tokens_per_second), r.mfu ? Number(*r.mfu) : "null",
                     r.device_peak_bytes, TiersOf(r), Number(r.seconds), RanksOf(r));
}

std::string ToJsonLine(const EvaluationRow& r) {
  return fmt::format(R"({{"step": {}, "epoch": {}, "eval_loss": {}{}, "eval_tokens": {}, "eval_seconds": {}}})", r.step,
                     Number(r.epoch), Number(r.eval_loss), ReportsOf(r.reports, "eval_"), r.eval_tokens,
                     Number(r.eval_seconds));
}

MetricsLog::MetricsLog(Env& env, std::string path, std::unique_ptr<WritableFile> file, int64_t size)
    : env_(env), path_(std::move(path)), file_(std::move(file)), size_(size) {}

MetricsLog::~MetricsLog() = default;

Result<std::unique_ptr<MetricsLog>> MetricsLog::Open(Env& env, const std::string& path) {
  int64_t size = 0;
  if (env.IsFile(path)) {
    TEMPER_ASSIGN_OR_RETURN(const auto present, env.OpenForRead(path));
    size = present->size().v;
  }
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForWrite(path, WriteMode::kAppend));
  return std::unique_ptr<MetricsLog>(new MetricsLog(env, path, std::move(file), size));
}

Status MetricsLog::Write(const TrainingRow& row) {
  return WriteLine(ToJsonLine(row));
}
Status MetricsLog::Write(const EvaluationRow& row) {
  return WriteLine(ToJsonLine(row));
}
Status MetricsLog::Sync() {
  return file_->Sync();
}

Status MetricsLog::WriteLine(std::string line) {
  if (torn_) {
    TEMPER_RETURN_IF_ERROR(env_.Truncate(path_, size_));
    torn_ = false;
  }
  line += '\n';
  const Status written = file_->Append(std::string_view(line));
  if (!written.ok()) {
    // Truncates now or, if that also fails, before the next row.
    torn_ = !env_.Truncate(path_, size_).ok();
    return written;
  }
  size_ += static_cast<int64_t>(line.size());
  return OkStatus();
}

Status TruncateMetrics(Env& env, const std::string& path, int64_t step, bool evaluated) {
  if (!env.IsFile(path)) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path));
  std::string kept;
  kept.reserve(text.size());
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    bool complete = false;
    const std::string_view line = TakeLine(rest, complete);
    const Json row = ParseRow(line);
    if (row.is_null()) {
      if (complete) return NotARow(path, number);
      continue;  // truncated by a crash
    }
    const int64_t at = row["step"].get<int64_t>();
    if (at < step || (at == step && (evaluated || !row.contains("eval_loss")))) kept.append(line).push_back('\n');
  }
  return kept == text ? OkStatus() : WriteTextFileAtomically(env, path, kept);
}

Result<LossHistory> ReadLossHistory(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path));
  LossHistory history;
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    bool complete = false;
    const Json row = ParseRow(TakeLine(rest, complete));
    if (row.is_null()) {
      if (complete) return NotARow(path, number);
      continue;
    }
    const int64_t step = row["step"].get<int64_t>();
    for (const auto& [key, series] :
         {std::pair("loss", &history.training), std::pair("eval_loss", &history.evaluation)}) {
      const auto loss = row.find(key);
      if (loss != row.end() && loss->is_number()) series->emplace_back(step, loss->get<double>());
    }
  }
  return history;
}

}  // namespace temper
