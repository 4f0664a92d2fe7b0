// ReferenceScores: what the model said of the data before the run (TokenStore::score), kept with the run: a run that
// goes on has other weights. A file of a line of JSON, the numbers (f32, little-endian), and the checksum of both. It
// belongs to the output folder, whose checkpoints say of which model it is.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "run/data.h"
#include "run/ranks.h"
#include "runtime/executor.h"
#include "train/peers.h"

namespace temper {

inline constexpr char kReferenceFile[] = "reference.bin";  // in the output folder

struct ReferenceScores {
  struct OfData {
    std::string fingerprint;     // of the data
    std::vector<float> numbers;  // as TokenStore::KeepScores takes them, then those of mismatched samples
  };
  OfData train;
  std::optional<OfData> evaluation;  // if it has data of its own
};

std::string PrintScores(const ReferenceScores& scores);
// Error: kCorrupt, naming `where`.
Result<ReferenceScores> ParseScores(const std::string& bytes, const std::string& where);

struct ScoreRequest {
  Executor& reference;  // runs its Program with the weights of the run's start
  RunData& train;
  RunData* evaluation = nullptr;  // of its own
  // Of rated answers: each after another prompt (TokenStore::Mismatched).
  TokenStore *mismatched = nullptr, *evaluation_mismatched = nullptr;
  std::string train_fingerprint, evaluation_fingerprint;
  int64_t max_seq_len = 0;
  std::span<const std::string_view> parts;  // of a sample
  const Ranks& ranks;
  Peers peers;
  std::optional<std::string> kept;  // a run that goes on: its file, which alone will do
  std::function<bool()> stop = {};  // ends with kInterrupted
};

// Gives the stores of the request their scores, and returns these. All ranks call it at the same place.
Result<ReferenceScores> ScoreReference(const ScoreRequest& request);

}  // namespace temper
