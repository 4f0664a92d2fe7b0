// ReferenceScores: what the model said of the data before the run (TokenStore::score), kept with the run: a run that
// goes on has other weights. A file of a line of JSON, the numbers (f32, little-endian), and the checksum of both.
#pragma once

#include <functional>
#include <string>
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
  std::vector<float> train, evaluation;  // evaluation: of data of its own
};

// `key`: what the scores depend on.
Status WriteScores(Env& env, const std::string& path, const std::string& key, const ReferenceScores& scores);
// Errors: kNotFound, there is no file, or it has another key; kCorrupt, naming the file.
Result<ReferenceScores> ReadScores(Env& env, const std::string& path, const std::string& key);

// The bytes of such a file, for other ranks.
std::string PrintScores(const std::string& key, const ReferenceScores& scores);
Result<ReferenceScores> ParseScores(const std::string& bytes, const std::string& key, const std::string& where);

struct ScoreRequest {
  Executor& reference;  // runs its Program with the weights of the run's start
  RunData& train;
  RunData* evaluation = nullptr;  // of its own
  int64_t max_seq_len = 0;
  int parts = 0;
  const Ranks& ranks;
  Peers peers;
  std::string kept;      // a file of an earlier part of this run, which is read if it is there; "": there is none
  std::string key;       // what the scores depend on
  bool changed = false;  // the weights are no longer those of the start: only kept scores will do
  std::function<bool()> stop = {};  // ends with kInterrupted
};

// Gives the stores of the request their scores, and returns these. All ranks call it at the same place.
Result<ReferenceScores> ScoreReference(const ScoreRequest& request);

}  // namespace temper
