#include "data/padded_rows.h"

#include <algorithm>

#include "base/check.h"

namespace temper {

int64_t LongestRow(const TokenStore& store, const Packing& packing, int64_t first, int64_t count) {
  int64_t longest = 0;
  for (int64_t r = first; r < first + count; ++r) {
    int64_t tokens = 0;
    for (const int32_t sample : packing.row(r)) tokens += store.length(sample);
    longest = std::max(longest, tokens);
  }
  return longest;
}

size_t ShortestThatHolds(std::span<const int64_t> lengths, int64_t tokens) {
  TEMPER_CHECK(!lengths.empty() && tokens <= lengths.front()) << tokens << " tokens";
  size_t k = lengths.size() - 1;
  while (lengths[k] < tokens) --k;
  return k;
}

double FilledPart(const TokenStore& store, const Packing& packing, int64_t rows, std::span<const int64_t> lengths) {
  int64_t places = 0;
  for (int64_t first = 0; first < packing.rows(); first += rows) {
    const int64_t count = std::min(rows, packing.rows() - first);
    places += rows * lengths[ShortestThatHolds(lengths, LongestRow(store, packing, first, count))];
  }
  return static_cast<double>(packing.tokens()) / static_cast<double>(std::max<int64_t>(places, 1));
}

}  // namespace temper
