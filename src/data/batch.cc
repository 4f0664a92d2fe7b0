#include "data/batch.h"

#include <algorithm>

#include "base/check.h"

namespace temper {
namespace {

// Writes one sample at `at`; returns its supervised targets.
int64_t FillSample(const TokenStore& store, int64_t sample, size_t at, const BatchArrays& arrays) {
  const std::span<const int32_t> tokens = store.tokens(sample);
  int64_t supervised = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool learnt = i + 1 < tokens.size() && store.supervised(sample, static_cast<int64_t>(i) + 1);
    arrays.token_T[at + i] = tokens[i];
    arrays.target_T[at + i] = learnt ? tokens[i + 1] : -1;
    arrays.position_T[at + i] = static_cast<int32_t>(i);
    arrays.document_start_T[at + i] = static_cast<int32_t>(at);
    supervised += learnt;
  }
  return supervised;
}

void FillPadding(size_t begin, size_t end, const BatchArrays& arrays) {
  for (size_t i = begin; i < end; ++i) {
    arrays.token_T[i] = 0;
    arrays.target_T[i] = -1;
    arrays.position_T[i] = 0;
    arrays.document_start_T[i] = static_cast<int32_t>(i);
  }
}

}  // namespace

BatchCounts FillBatch(const TokenStore& store, const Packing& packing, int64_t first_row, int64_t rows,
                      const BatchArrays& arrays) {
  const auto row_len = static_cast<size_t>(packing.options().max_seq_len);
  const size_t size = arrays.token_T.size();
  TEMPER_CHECK(arrays.target_T.size() == size && arrays.position_T.size() == size &&
               arrays.document_start_T.size() == size)
      << size << " tokens, " << arrays.target_T.size() << " targets, " << arrays.position_T.size() << " positions, "
      << arrays.document_start_T.size() << " document starts";
  TEMPER_CHECK(size % row_len == 0 && static_cast<size_t>(rows) * row_len <= size)
      << rows << " rows of " << row_len << " in arrays of " << size;
  TEMPER_CHECK(first_row >= 0 && rows >= 0 && first_row + rows <= packing.rows())
      << "rows " << first_row << " + " << rows << " of " << packing.rows();
  BatchCounts counts;
  for (int64_t row = 0; row < rows; ++row) {
    const size_t begin = static_cast<size_t>(row) * row_len;
    size_t at = begin;
    for (const int32_t sample : packing.row(first_row + row)) {
      counts.supervised += FillSample(store, sample, at, arrays);
      at += static_cast<size_t>(store.length(sample));
    }
    counts.tokens += static_cast<int64_t>(at - begin);
    FillPadding(at, begin + row_len, arrays);
  }
  FillPadding(static_cast<size_t>(rows) * row_len, size, arrays);
  return counts;
}

}  // namespace temper
