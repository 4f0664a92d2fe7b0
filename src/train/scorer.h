// Scorer: the sum of the log-probabilities of each part's targets, for all samples of a store, under a Program that
// computes those of tokens (objective/objective.h: kLogprobOutput). Mesh and batch change no more than its rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "data/packing.h"
#include "data/token_store.h"
#include "runtime/executor.h"
#include "train/peers.h"
#include "train/trainer.h"

namespace temper {

class Scorer {
 public:
  // `executor` runs the Program, whose micro-batch has rows of `max_seq_len` tokens; all must outlive this. Every
  // sample has these parts.
  Scorer(Executor& executor, const TokenStore& store, int64_t max_seq_len, std::span<const std::string_view> parts,
         SamplePlace place, const Peers& peers = {});
  // Part p of sample s has [s * parts.size() + p]; the same on all ranks. Calls `progress` and `stop` as Evaluator::Run
  // does. Errors: a number that is not finite, naming the row of the data.
  Result<std::vector<float>> Run(const std::function<bool()>& stop = nullptr,
                                 const std::function<void(int64_t done, int64_t rows)>& progress = nullptr);

 private:
  // Adds the sums of a sample whose first token is at `place` of the micro-batch.
  void Add(int64_t sample, int64_t place, std::vector<double>* sums) const;

  Executor& executor_;
  const TokenStore& store_;
  Packing packing_;
  const std::span<const std::string_view> parts_;
  SamplePlace place_;
  const Peers peers_;
  HostBatches batch_;
};

}  // namespace temper
