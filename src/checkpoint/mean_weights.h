// MeanWeights: the mean of models that have the same tensors: checkpoints of a run, or runs from the same base. Each
// model's adapter is merged first, so adapters of any ranks have a mean: that of their models, which the mean of A
// times the mean of B is not. Sums are in double, in the order of the models; a result is rounded once, to its type.
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "checkpoint/merged_weights.h"

namespace temper {

class MeanWeights {
 public:
  // Types, names and notices are those of the first model. Errors: a model that has other tensors, shapes or another
  // config.json, but for what says how its numbers are stored. `specs` and `env` must outlive the result. REQUIRES: at
  // least one.
  static Result<MeanWeights> Open(Env& env, std::span<const ExportSpec> specs, std::optional<DType> dtype);
  Status Verify(const TransferCallback& progress) const;

  const MergedWeights& first() const { return models_.front(); }
  MergedWeights& first() { return models_.front(); }
  bool several() const { return models_.size() > 1; }

  class Reader {
   public:
    // Rows [first, first + out.size() / columns()) of dim 0. Errors as MergedWeights::Reader::Read's.
    Status Read(int64_t first, std::span<double> out, std::span<std::byte> staging);
    int64_t columns() const { return of_models_.front().columns(); }

   private:
    friend class MeanWeights;
    std::vector<MergedWeights::Reader> of_models_;
    std::vector<float> own_;  // of one model
  };
  // `tensor` is one of first().tensors().
  Result<Reader> OpenReader(const MergedWeights::Tensor& tensor);

 private:
  std::deque<MergedWeights> models_;
};

}  // namespace temper
