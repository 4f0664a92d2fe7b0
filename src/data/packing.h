// Packing: which samples share a row of max_seq_len tokens, for each epoch.
//
// Best fit, longest first, over the whole epoch: each sample goes to the row in which it leaves the least room. Samples
// are never split, every sample is in exactly one row. Samples of one length trade places, and rows are reordered, at
// random per epoch. The result depends only on the samples' lengths, the seed and the epoch.
//
// Samples may be seen more or less often than once an epoch, each set of them by its number of passes P. Of the n
// samples of a set an epoch takes round(P n), at least one: the next ones of an endless repetition of the set, in an
// order that depends on the seed. So 2 passes see each sample twice in an epoch, 0.5 passes half of the samples and the
// other half in the next epoch. Within an epoch the numbers of two samples of a set differ by one at most.
//
// The number of rows depends only on the lengths (samples of one length are interchangeable). So it is the same in
// every epoch, unless a set gives a part of its samples (rows_vary).
//
// All memory is taken in the constructor (20 bytes per sample of an epoch, 28 where samples have parts, and about as
// much per row); Pack allocates nothing, so a new epoch may begin between two training steps. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "data/token_store.h"

namespace temper {

// Samples from `first_sample` on, up to the next entry's.
struct SamplePasses {
  int64_t first_sample = 0;
  double passes = 1;
};

struct PackingOptions {
  int64_t max_seq_len = 2048;
  bool packing = true;  // false: every sample has a row of its own
  bool shuffle = true;  // false: rows in the order of their samples (evaluation); seed and epoch have no effect
  std::vector<SamplePasses> passes;  // ascending, the first from 0; empty: each sample once
};

// How many samples an epoch has, each counted as often as it is seen.
int64_t SamplesPerEpoch(std::span<const int32_t> samples, const std::vector<SamplePasses>& passes);
// Error: an epoch has more than Packing can number.
Status CheckPasses(std::span<const int32_t> samples, const std::vector<SamplePasses>& passes);

class Packing {
 public:
  // Packs `samples` of `store`, ascending. REQUIRES: none is longer than max_seq_len; CheckPasses is OK.
  // Only the constructor reads `store`.
  Packing(const TokenStore& store, std::span<const int32_t> samples, const PackingOptions& options);

  // Fills in the rows of `epoch`. About 0.1 us per sample.
  void Pack(uint64_t seed, int64_t epoch);

  // Of the epoch packed last; the constructor packs one.
  int64_t rows() const { return rows_; }
  bool rows_vary() const { return !order_of_set_.empty(); }  // from epoch to epoch
  // Ids of the samples in row `row` of the epoch packed last, in order. Rows are numbered in training order.
  std::span<const int32_t> row(int64_t row) const {
    const auto r = static_cast<size_t>(row_order_[static_cast<size_t>(row)]);
    return std::span(placed_).subspan(static_cast<size_t>(row_begin_[r]),
                                      static_cast<size_t>(row_begin_[r + 1] - row_begin_[r]));
  }

  int64_t tokens() const { return tokens_; }  // of the epoch's samples
  // The fraction of the rows' places that hold tokens, 0 to 1.
  double efficiency() const;
  // Of an epoch: the sum of length (length + 1) / 2 over its samples, or their parts, to count attention's arithmetic.
  double attended_pairs() const;
  Bytes memory() const;
  const PackingOptions& options() const { return options_; }

 private:
  struct SampleSet {
    size_t begin = 0, end = 0;  // in ids_
    size_t per_epoch = 0;
  };
  void Draw(uint64_t seed, int64_t epoch);  // the epoch's samples, in the order of ids_, into placed_
  void Place();                             // order_, longest first, into rows

  const PackingOptions options_;
  int64_t rows_ = 0;
  int64_t tokens_ = 0;
  std::vector<int32_t> ids_;      // as given
  std::vector<int32_t> lengths_;  // of ids_[i]
  std::vector<double> pairs_;     // the same sum for ids_[i]; empty if no sample is in parts
  std::vector<SampleSet> sets_;
  // Scratch and result of Pack; indices are places in ids_.
  std::vector<int32_t> order_of_set_;  // of a set that gives a part of its samples; empty if none does
  std::vector<int32_t> order_;         // longest first
  std::vector<int32_t> by_length_;     // begin of each length in order_
  std::vector<int32_t> row_of_;        // of order_[i]
  std::vector<int32_t> room_;          // rows with l free places: head of a list per l
  std::vector<int32_t> next_row_;      // the list's links
  std::vector<uint64_t> room_bits_;    // which lists are not empty, 64 per word
  std::vector<int64_t> row_begin_;     // in placed_
  std::vector<int32_t> placed_;        // sample ids, row by row
  std::vector<int32_t> row_order_;     // training order of the rows
};

}  // namespace temper
