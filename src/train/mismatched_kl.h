// MismatchedKl: what a model has gained on answers to other prompts, which KTO compares ratings with: the mean over a
// batch of by how much the log-probability of each sample's mismatched answer (TokenStore::Mismatched) has risen since
// the start, 0 if it has fallen. One batch is what a step trains on, or all that an evaluation sees, so that the number
// depends neither on micro-batches nor on the mesh. (TRL takes it of each micro-batch.)
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "data/packing.h"
#include "data/token_store.h"
#include "runtime/executor.h"
#include "train/host_batches.h"
#include "train/peers.h"

namespace temper {

class MismatchedKl {
 public:
  // `reference` runs the Program of that name, with rows of `max_seq_len` tokens, under the weights as they are;
  // `store` has the scores of the start. Both must outlive this. `most_samples`: of a batch.
  MismatchedKl(Executor& reference, const TokenStore& store, int64_t max_seq_len, int64_t most_samples,
               const Peers& peers);
  // Of the samples in these rows of `packing`, whose ids the store shares. All ranks call it at the same place, with a
  // `stop` or without; that of any rank, asked before each micro-batch, ends it with kInterrupted.
  Result<double> Of(const Packing& packing, int64_t first_row, int64_t rows,
                    const std::function<bool()>& stop = nullptr);

 private:
  Executor& executor_;
  const TokenStore& store_;
  const int64_t row_;
  const Peers peers_;
  HostBatches batch_;
  std::vector<int32_t> samples_;  // of the batch
  std::vector<int64_t> places_;   // in a micro-batch
};

}  // namespace temper
