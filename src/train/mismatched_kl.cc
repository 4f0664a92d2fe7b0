#include "train/mismatched_kl.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/batch.h"
#include "objective/objective.h"

namespace temper {
namespace {

constexpr std::array<ReportSpec, 1> kMismatchedReports = {{{"logprob", kLogprobOutput}}};

}  // namespace

MismatchedKl::MismatchedKl(Executor& reference, const TokenStore& store, int64_t max_seq_len, int64_t most_samples,
                           const Peers& peers)
    : executor_(reference), store_(store), row_(max_seq_len), peers_(peers), batch_(reference, 1, kMismatchedReports) {
  TEMPER_CHECK(peers.context_ranks == 1) << "ranks share rows";
  samples_.reserve(static_cast<size_t>(most_samples));
  places_.reserve(static_cast<size_t>(std::min(most_samples, batch_.tokens_per_micro_batch())));
}

Result<double> MismatchedKl::Of(const Packing& packing, int64_t first_row, int64_t rows,
                                const std::function<bool()>& stop) {
  samples_.clear();
  double reference = 0, sum = 0;
  for (int64_t r = first_row; r < first_row + rows; ++r) {
    for (const int32_t sample : packing.row(r)) {
      samples_.push_back(sample);
      reference += store_.score(sample, 0);
    }
  }
  for (size_t at = 0; at < samples_.size();) {
    if (stop) {
      TEMPER_ASSIGN_OR_RETURN(const bool stopping, peers_.Any(stop()));
      if (stopping) return Interrupted("the evaluation was aborted");
    }
    // A micro-batch for each rank that has rows of its own; all place all samples.
    for (int64_t rank = 0; rank < peers_.data_ranks; ++rank) {
      const auto left = std::span<const int32_t>(samples_).subspan(at);
      const int64_t placed =
          FillInOrder(store_, left, row_, batch_.tokens_per_micro_batch(), batch_.columns(0), &places_);
      at += static_cast<size_t>(placed);
      if (rank != peers_.data_rank) continue;
      TEMPER_RETURN_IF_ERROR(executor_.Run(batch_.io()));
      for (int64_t i = 0; i < placed; ++i) {
        const TokenSample tokens = store_.sample(left[static_cast<size_t>(i)]);
        const int64_t place = places_[static_cast<size_t>(i)];
        double of_sample = 0;
        for (int64_t t = 0; t + 1 < tokens.length(); ++t) {
          if (tokens.supervised(t + 1)) of_sample += batch_.report(0)[static_cast<size_t>(place + t)];
        }
        sum += static_cast<float>(of_sample);  // as the reference's are rounded: an unchanged model has 0
      }
    }
  }
  store_.LetGo();
  TEMPER_RETURN_IF_ERROR(peers_.SumOfLastStage({&sum, 1}));
  if (!std::isfinite(sum)) {
    return Numerical(
        "the likelihood of answers after other prompts (kl) is not a finite number: the training diverged");
  }
  return std::max(0.0, (sum - reference) / static_cast<double>(std::max<size_t>(samples_.size(), 1)));
}

}  // namespace temper
