#include "train/judge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace temper {
Judge::Judge(Executor& executor, const TokenStore& store, int64_t max_seq_len, int64_t classes, SamplePlace place)
    : executor_(executor),
      store_(store),
      packing_(store, store.AllSamples(), {.max_seq_len = max_seq_len, .shuffle = false}),
      classes_(classes),
      place_(std::move(place)),
      batch_(executor, 1, {}, kClassLogitsOutput) {
  packing_.Pack(0, 0);
}

Result<std::vector<float>> Judge::Run(const std::function<bool()>& stop,
                                      const std::function<void(int64_t done, int64_t rows)>& progress) {
  const int64_t row_len = packing_.options().max_seq_len, rows = batch_.tokens_per_micro_batch() / row_len;
  std::vector<float> logits(static_cast<size_t>(store_.size() * classes_));
  for (int64_t first = 0; first < packing_.rows(); first += rows) {
    if (stop && stop()) return Interrupted("scoring was aborted");
    if (progress) progress(first, packing_.rows());
    const int64_t filled = std::min(rows, packing_.rows() - first);
    FillBatch(store_, packing_, first, filled, batch_.tokens_per_micro_batch(), batch_.columns(0));
    TEMPER_RETURN_IF_ERROR(executor_.Run(batch_.io()));
    for (int64_t r = 0; r < filled; ++r) {
      int64_t end = r * row_len;  // of the sample, in the micro-batch
      for (const int32_t sample : packing_.row(first + r)) {
        end += store_.length(sample);
        const auto own =
            batch_.also().subspan(static_cast<size_t>((end - 1) * classes_), static_cast<size_t>(classes_));
        const auto bad = std::find_if(own.begin(), own.end(), [](float x) { return !std::isfinite(x); });
        if (bad != own.end()) {
          return Numerical(
              fmt::format("{}: a logit is not a finite number ({}): the model's weights are corrupt, or "
                          "--dtype f32 is needed",
                          place_(sample), *bad));
        }
        std::copy(own.begin(), own.end(), logits.begin() + sample * classes_);
      }
    }
    store_.LetGo();
  }
  return logits;
}

}  // namespace temper
