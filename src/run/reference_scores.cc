#include "run/reference_scores.h"

#include <fmt/core.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/log.h"
#include "base/progress_display.h"
#include "base/units.h"
#include "format/checksum.h"
#include "format/json.h"
#include "train/evaluation_progress.h"
#include "train/scorer.h"

namespace temper {
namespace {

constexpr char kKey[] = "key", kTrain[] = "train", kEvaluation[] = "evaluation";
constexpr Bytes kMost = GiB(16);  // 2^31 samples of two answers

std::span<const std::byte> BytesOf(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

std::string PrintScores(const std::string& key, const ReferenceScores& scores) {
  const Json head = {{kKey, key}, {kTrain, scores.train.size()}, {kEvaluation, scores.evaluation.size()}};
  std::string bytes = head.dump() + "\n";
  for (const std::vector<float>* values : {&scores.train, &scores.evaluation}) {
    const auto raw = BytesOf(*values);
    bytes.append(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  return bytes + ChecksumHex(std::as_bytes(std::span(bytes)));
}

Result<ReferenceScores> ParseScores(const std::string& bytes, const std::string& key, const std::string& where) {
  const auto damaged = [&] { return Corrupt(where + " is damaged: remove it, and the data is scored again"); };
  const size_t sum = ChecksumHex({}).size(), head_end = bytes.find('\n');
  if (bytes.size() < sum || head_end == bytes.npos || head_end + 1 > bytes.size() - sum) return damaged();
  const auto body = std::as_bytes(std::span(bytes)).first(bytes.size() - sum);
  if (ChecksumHex(body) != bytes.substr(body.size())) return damaged();
  TEMPER_ASSIGN_OR_RETURN(const Json head, ParseJson(bytes.substr(0, head_end), where));
  if (head.value(kKey, std::string()) != key) return NotFound(where + " is of other data");
  ReferenceScores scores;
  size_t at = head_end + 1;
  for (const auto& [name, values] : {std::pair{kTrain, &scores.train}, {kEvaluation, &scores.evaluation}}) {
    const auto count = head.value(name, uint64_t{0});
    if (count > (body.size() - at) / sizeof(float)) return damaged();
    values->resize(count);
    std::memcpy(values->data(), body.data() + at, count * sizeof(float));
    at += count * sizeof(float);
  }
  return at == body.size() ? Result(std::move(scores)) : damaged();
}

Status WriteScores(Env& env, const std::string& path, const std::string& key, const ReferenceScores& scores) {
  return WriteTextFileAtomically(env, path, PrintScores(key, scores));
}

Result<ReferenceScores> ReadScores(Env& env, const std::string& path, const std::string& key) {
  if (!env.IsFile(path)) return NotFound("there is no " + path);
  TEMPER_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(env, path, kMost));
  return ParseScores(bytes, key, path);
}

namespace {

Result<std::vector<float>> Scored(const ScoreRequest& r, const RunData& data) {
  const Dataset& dataset = data.dataset;
  Scorer scorer(
      r.reference, dataset.store, r.max_seq_len, r.parts,
      [&dataset](int32_t sample) { return dataset.PlaceOf(sample); }, r.peers);
  ProgressDisplay display(/*silent=*/!r.ranks.first());
  EvaluationProgress shown(display, EvaluationProgress::Clock::now, "score row");
  return scorer.Run(r.stop, [&](int64_t done, int64_t rows) { shown.Update(done, rows); });
}

// Those of an earlier part of the run, on all ranks; nullopt: there are none.
Result<std::optional<ReferenceScores>> Kept(const ScoreRequest& r) {
  if (r.kept.empty()) return std::optional<ReferenceScores>();
  Result<ReferenceScores> read = NotFound("");
  if (r.ranks.first()) read = ReadScores(PosixEnv(), r.kept, r.key);
  const bool there = read.ok(), damaged = !there && read.status().code() == StatusCode::kCorrupt;
  if (damaged && !r.changed) LogWarning(read.status().message());
  TEMPER_RETURN_IF_ERROR(r.ranks.Agree(damaged && r.changed ? read.status() : OkStatus()));
  TEMPER_ASSIGN_OR_RETURN(const std::string bytes, r.ranks.FromFirst(there ? PrintScores(r.key, *read) : ""));
  if (bytes.empty()) return std::optional<ReferenceScores>();
  TEMPER_ASSIGN_OR_RETURN(ReferenceScores scores, ParseScores(bytes, r.key, r.kept));
  return std::optional(std::move(scores));
}

}  // namespace

Result<ReferenceScores> ScoreReference(const ScoreRequest& r) {
  TEMPER_ASSIGN_OR_RETURN(const std::optional<ReferenceScores> kept, Kept(r));
  if (!kept && r.changed) {
    return NotFound(
        fmt::format("{} is missing or of other data: it has what the model said of the data before the run, "
                    "which its weights of now cannot tell. Put it back, or start a new run",
                    r.kept));
  }
  ReferenceScores scores;
  if (kept) {
    scores = *kept;
  } else {
    TEMPER_ASSIGN_OR_RETURN(scores.train, Scored(r, r.train));
    if (r.evaluation != nullptr) {
      TEMPER_ASSIGN_OR_RETURN(scores.evaluation, Scored(r, *r.evaluation));
    }
  }
  const auto keep = [&](RunData& data, const std::vector<float>& values) -> Status {
    TokenStore& store = data.dataset.store;
    if (values.size() != static_cast<size_t>(store.size() * r.parts)) {
      return Corrupt(fmt::format("{}: {} scores for {} samples", r.kept, values.size(), store.size()));
    }
    store.KeepScores(r.parts, values);
    return OkStatus();
  };
  TEMPER_RETURN_IF_ERROR(keep(r.train, scores.train));
  if (r.evaluation != nullptr) TEMPER_RETURN_IF_ERROR(keep(*r.evaluation, scores.evaluation));
  return scores;
}

}  // namespace temper
