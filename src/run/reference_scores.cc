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

constexpr char kTrainOf[] = "train", kEvaluationOf[] = "evaluation", kFingerprintOf[] = "fingerprint",
               kCountOf[] = "numbers";
constexpr Bytes kMostScores = GiB(16);  // 2^31 samples of two answers

Json HeadOf(const ReferenceScores::OfData& of) {
  return {{kFingerprintOf, of.fingerprint}, {kCountOf, of.numbers.size()}};
}

void AppendNumbers(const ReferenceScores::OfData& of, std::string* bytes) {
  const auto raw = std::as_bytes(std::span(of.numbers));
  bytes->append(reinterpret_cast<const char*>(raw.data()), raw.size());
}

// The numbers that `head` tells of, from `body` on.
std::optional<ReferenceScores::OfData> TakeNumbers(const Json& head, std::span<const std::byte>* body) {
  const auto fingerprint = head.find(kFingerprintOf), numbers = head.find(kCountOf);
  if (!head.is_object() || fingerprint == head.end() || !fingerprint->is_string() || numbers == head.end() ||
      !numbers->is_number_unsigned() || numbers->get<uint64_t>() > body->size() / sizeof(float)) {
    return std::nullopt;
  }
  ReferenceScores::OfData of{.fingerprint = fingerprint->get<std::string>()};
  of.numbers.resize(numbers->get<uint64_t>());
  const size_t bytes = of.numbers.size() * sizeof(float);
  std::memcpy(of.numbers.data(), body->data(), bytes);
  *body = body->subspan(bytes);
  return of;
}

}  // namespace

std::string PrintScores(const ReferenceScores& scores) {
  Json head = {{kTrainOf, HeadOf(scores.train)}};
  if (scores.evaluation) head[kEvaluationOf] = HeadOf(*scores.evaluation);
  std::string bytes = DumpJson(head) + "\n";
  AppendNumbers(scores.train, &bytes);
  if (scores.evaluation) AppendNumbers(*scores.evaluation, &bytes);
  return bytes + ChecksumHex(std::as_bytes(std::span(bytes)));
}

Result<ReferenceScores> ParseScores(const std::string& bytes, const std::string& where) {
  const Status damaged =
      Corrupt(where +
              " is damaged. It has what the model said of the data before the run: restore it from a copy, or start a "
              "new run");
  const size_t sum = ChecksumHex({}).size(), head_end = bytes.find('\n');
  if (bytes.size() < sum || head_end == bytes.npos || head_end + 1 > bytes.size() - sum) return damaged;
  const auto summed = std::as_bytes(std::span(bytes)).first(bytes.size() - sum);
  if (ChecksumHex(summed) != bytes.substr(summed.size())) return damaged;
  const Result<Json> head = ParseJson(bytes.substr(0, head_end), where);
  if (!head.ok() || !head->is_object() || !head->contains(kTrainOf)) return damaged;
  std::span<const std::byte> body = summed.subspan(head_end + 1);
  ReferenceScores scores;
  const auto train = TakeNumbers((*head)[kTrainOf], &body);
  if (!train) return damaged;
  scores.train = *train;
  if (head->contains(kEvaluationOf)) {
    scores.evaluation = TakeNumbers((*head)[kEvaluationOf], &body);
    if (!scores.evaluation) return damaged;
  }
  return body.empty() ? Result(std::move(scores)) : damaged;
}

namespace {

Result<ReferenceScores::OfData> Scored(const ScoreRequest& r, const RunData& data, const TokenStore* mismatched,
                                       const std::string& fingerprint) {
  const Dataset& dataset = data.dataset;
  ProgressDisplay display(/*silent=*/!r.ranks.first());
  ReferenceScores::OfData of{.fingerprint = fingerprint};
  for (const TokenStore* store : {&dataset.store, mismatched}) {
    if (store == nullptr) continue;
    Scorer scorer(
        r.reference, *store, r.max_seq_len, r.parts, [&dataset](int32_t sample) { return dataset.PlaceOf(sample); },
        r.peers);
    EvaluationProgress shown(display, EvaluationProgress::Clock::now, "score row");
    TEMPER_ASSIGN_OR_RETURN(const std::vector<float> numbers,
                            scorer.Run(r.stop, [&](int64_t done, int64_t rows) { shown.Update(done, rows); }));
    of.numbers.insert(of.numbers.end(), numbers.begin(), numbers.end());
  }
  return of;
}

// Those of an earlier part of the run, on all ranks.
Result<ReferenceScores> Kept(const ScoreRequest& r) {
  Result<std::string> bytes = std::string();
  if (r.ranks.first()) {
    bytes =
        PosixEnv().IsFile(*r.kept)
            ? ReadTextFile(PosixEnv(), *r.kept, kMostScores)
            : NotFound(fmt::format("{} is missing. It has what the model said of the data before the run, which its "
                                   "weights of now cannot tell: put it back, or start a new run",
                                   *r.kept));
  }
  TEMPER_RETURN_IF_ERROR(r.ranks.Agree(bytes.status()));
  TEMPER_ASSIGN_OR_RETURN(const std::string firsts, r.ranks.FromFirst(*bytes));
  return ParseScores(firsts, *r.kept);
}

Status CheckKept(const ScoreRequest& r, const char* option, const RunData& data, const std::string& fingerprint,
                 const ReferenceScores::OfData* of) {
  const auto numbers =
      static_cast<size_t>(data.dataset.store.size()) * (r.parts.size() + (r.mismatched != nullptr ? 1 : 0));
  if (of != nullptr && of->fingerprint == fingerprint && of->numbers.size() == numbers) return OkStatus();
  return InvalidArgument(fmt::format(
      "{} changed: {} has what the model said of the old data before the run, and of the new data its weights "
      "of now cannot tell. Resume with the old {}, or start a new run",
      option, *r.kept, option));
}

}  // namespace

Result<ReferenceScores> ScoreReference(const ScoreRequest& r) {
  ReferenceScores scores;
  if (r.kept) {
    TEMPER_ASSIGN_OR_RETURN(scores, Kept(r));
    TEMPER_RETURN_IF_ERROR(CheckKept(r, "data", r.train, r.train_fingerprint, &scores.train));
    if (r.evaluation != nullptr) {
      TEMPER_RETURN_IF_ERROR(CheckKept(r, "eval_data", *r.evaluation, r.evaluation_fingerprint,
                                       scores.evaluation ? &*scores.evaluation : nullptr));
    }
  } else {
    TEMPER_ASSIGN_OR_RETURN(scores.train, Scored(r, r.train, r.mismatched, r.train_fingerprint));
    if (r.evaluation != nullptr) {
      TEMPER_ASSIGN_OR_RETURN(scores.evaluation,
                              Scored(r, *r.evaluation, r.evaluation_mismatched, r.evaluation_fingerprint));
    }
  }
  const auto keep = [&](const ReferenceScores::OfData& of, TokenStore& store, TokenStore* mismatched) {
    const int parts = static_cast<int>(r.parts.size());
    const auto own = of.numbers.begin() + store.size() * parts;
    store.KeepScores(parts, {of.numbers.begin(), own});
    if (mismatched != nullptr) mismatched->KeepScores(1, {own, of.numbers.end()});
  };
  keep(scores.train, r.train.dataset.store, r.mismatched);
  if (r.evaluation != nullptr) keep(*scores.evaluation, r.evaluation->dataset.store, r.evaluation_mismatched);
  return scores;
}

}  // namespace temper
