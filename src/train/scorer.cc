#include "train/scorer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace temper {
namespace {

constexpr std::array<ReportSpec, 1> kLogprobReports = {{{"logprob", kLogprobOutput}}};
// Numbers that ranks add up at a time.
constexpr size_t kPiece = 4096;

}  // namespace

Scorer::Scorer(Executor& executor, const TokenStore& store, int64_t max_seq_len,
               std::span<const std::string_view> parts, SamplePlace place, const Peers& peers)
    : executor_(executor),
      store_(store),
      packing_(store, store.AllSamples(), {.max_seq_len = max_seq_len, .shuffle = false}),
      parts_(parts),
      place_(std::move(place)),
      peers_(peers),
      batch_(executor, 1, kLogprobReports) {
  TEMPER_CHECK(peers.context_ranks == 1) << "ranks share rows";
  packing_.Pack(0, 0);
}

Result<std::vector<float>> Scorer::Run(const std::function<bool()>& stop,
                                       const std::function<void(int64_t done, int64_t rows)>& progress) {
  const int64_t row_len = packing_.options().max_seq_len, rows = batch_.tokens_per_micro_batch() / row_len;
  std::vector<double> sums(static_cast<size_t>(store_.size()) * parts_.size());
  for (int64_t all_first = 0; all_first < packing_.rows(); all_first += rows * peers_.data_ranks) {
    TEMPER_ASSIGN_OR_RETURN(const bool stopping, peers_.Any(stop && stop()));
    if (stopping) return Interrupted("scoring was aborted");
    if (progress) progress(all_first, packing_.rows());
    const int64_t first = std::min(all_first + peers_.data_rank * rows, packing_.rows());
    const int64_t filled = std::min(rows, packing_.rows() - first);
    FillBatch(store_, packing_, first, filled, batch_.tokens_per_micro_batch(), batch_.columns(0));
    TEMPER_RETURN_IF_ERROR(executor_.Run(batch_.io()));
    for (int64_t r = 0; r < filled; ++r) {
      int64_t place = r * row_len;
      for (const int32_t sample : packing_.row(first + r)) {
        Add(sample, place, &sums);
        place += store_.length(sample);
      }
    }
    store_.LetGo();
  }
  for (size_t begin = 0; begin < sums.size(); begin += kPiece) {
    TEMPER_RETURN_IF_ERROR(
        peers_.SumOfLastStage(std::span(sums).subspan(begin, std::min(kPiece, sums.size() - begin))));
  }
  const auto bad = std::find_if(sums.begin(), sums.end(), [](double sum) { return !std::isfinite(sum); });
  if (bad != sums.end()) {
    const auto at = static_cast<size_t>(bad - sums.begin());
    return Numerical(fmt::format(
        "{}: the log-probability of its {} answer under the model of the start is not a finite number ({}): the "
        "model's weights are corrupt, or --dtype f32 is needed",
        place_(static_cast<int32_t>(at / parts_.size())), parts_[at % parts_.size()], *bad));
  }
  return std::vector<float>(sums.begin(), sums.end());
}

void Scorer::Add(int64_t sample, int64_t place, std::vector<double>* sums) const {
  const TokenSample tokens = store_.sample(sample);
  size_t part = 0;
  for (int64_t begin = 0, end = 0; begin < tokens.length(); begin = end, ++part) {
    end = tokens.PartEnd(begin);
    TEMPER_CHECK(part < parts_.size()) << "sample " << sample << " has more than " << parts_.size() << " parts";
    double& sum = (*sums)[static_cast<size_t>(sample) * parts_.size() + part];
    for (int64_t i = begin; i + 1 < end; ++i) {
      if (tokens.supervised(i + 1)) sum += batch_.report(0)[static_cast<size_t>(place + i)];
    }
  }
  TEMPER_CHECK(part == parts_.size()) << "sample " << sample << " has " << part << " parts, not " << parts_.size();
}

}  // namespace temper
