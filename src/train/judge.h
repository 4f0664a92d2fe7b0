// Judge: the logits of the last token of every sample, under a Program that computes those of all tokens
// (objective/objective.h: kClassLogitsOutput). One rank.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/packing.h"
#include "data/token_store.h"
#include "runtime/executor.h"
#include "train/trainer.h"

namespace temper {

class Judge {
 public:
  // `executor` runs the Program, whose micro-batch has rows of `max_seq_len` tokens; all must outlive this.
  Judge(Executor& executor, const TokenStore& store, int64_t max_seq_len, int64_t classes, SamplePlace place);
  // Class c of sample s has [s * classes + c]. Calls `progress` and `stop` as Evaluator::Run does. Errors: a number
  // that is not finite, naming the row of the data.
  Result<std::vector<float>> Run(const std::function<bool()>& stop = nullptr,
                                 const std::function<void(int64_t done, int64_t rows)>& progress = nullptr);

 private:
  Executor& executor_;
  const TokenStore& store_;
  Packing packing_;
  const int64_t classes_;
  SamplePlace place_;
  HostBatches batch_;
};

}  // namespace temper
