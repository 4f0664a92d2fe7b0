#include "data/batch.h"

#include <algorithm>

#include "base/check.h"

namespace temper {
namespace {

// Places [begin, end) in whole rows, and the place of the first of them in the arrays.
struct Stretch {
  int64_t begin, end;
  int64_t local;
  // The part of it in [from, to).
  Stretch Within(int64_t from, int64_t to) const {
    const int64_t first = std::max(begin, from);
    return {first, std::max(first, std::min(end, to)), local + first - begin};
  }
};

// Writes the part of a sample that lies in the stretch; `start`: the place of its first token.
BatchCounts FillSample(const TokenStore& store, int64_t sample, int64_t start, const Stretch& own,
                       const BatchArrays& arrays) {
  const TokenSample tokens = store.sample(sample);
  const int64_t length = tokens.length();
  const Stretch part = own.Within(start, start + length);
  BatchCounts counts{.tokens = part.end - part.begin};
  auto at = static_cast<size_t>(part.local);
  for (int64_t i = part.begin - start; i < part.end - start; ++i, ++at) {
    const bool supervised = i + 1 < length && tokens.supervised(i + 1);
    arrays.token_T[at] = tokens.token(i);
    arrays.target_T[at] = supervised ? tokens.token(i + 1) : -1;
    arrays.position_T[at] = static_cast<int32_t>(i);
    arrays.document_start_T[at] = static_cast<int32_t>(start);
    if (!arrays.document_length_T.empty()) arrays.document_length_T[at] = static_cast<int32_t>(length);
    const TokenWeight weight = supervised ? tokens.weight(i + 1) : 0;
    if (!arrays.weight_T.empty()) arrays.weight_T[at] = static_cast<float>(WeightValue(weight));
    counts.supervised += supervised;
    counts.weight += weight;
  }
  return counts;
}

void FillPadding(const Stretch& own, const BatchArrays& arrays) {
  auto at = static_cast<size_t>(own.local);
  for (int64_t place = own.begin; place < own.end; ++place, ++at) {
    arrays.token_T[at] = 0;
    arrays.target_T[at] = -1;
    if (!arrays.weight_T.empty()) arrays.weight_T[at] = 0;
    arrays.position_T[at] = 0;
    arrays.document_start_T[at] = static_cast<int32_t>(place);
    if (!arrays.document_length_T.empty()) arrays.document_length_T[at] = 1;
  }
}

}  // namespace

BatchCounts FillBatch(const TokenStore& store, const Packing& packing, int64_t first_row, int64_t rows,
                      const BatchArrays& arrays, const ContextPart& part) {
  const int64_t row_len = packing.options().max_seq_len;
  const ContextPart own{.row = row_len, .ranks = part.ranks, .index = part.index};
  TEMPER_CHECK(part.ranks == 1 || (part.row == row_len && ContextPart::Divides(row_len, part.ranks)))
      << "rows of " << row_len << ", of which " << part.ranks << " ranks share " << part.row;
  const size_t size = arrays.token_T.size();
  TEMPER_CHECK(arrays.target_T.size() == size && arrays.position_T.size() == size &&
               arrays.document_start_T.size() == size)
      << size << " tokens, " << arrays.target_T.size() << " targets, " << arrays.position_T.size() << " positions, "
      << arrays.document_start_T.size() << " document starts";
  TEMPER_CHECK(arrays.weight_T.empty() || arrays.weight_T.size() == size)
      << size << " tokens, " << arrays.weight_T.size() << " weights";
  TEMPER_CHECK(arrays.document_length_T.empty() || arrays.document_length_T.size() == size)
      << size << " tokens, " << arrays.document_length_T.size() << " document lengths";
  const int64_t room = static_cast<int64_t>(size) / own.local_row();
  TEMPER_CHECK(static_cast<int64_t>(size) % own.local_row() == 0 && rows <= room)
      << rows << " rows of " << own.local_row() << " in arrays of " << size;
  TEMPER_CHECK(first_row >= 0 && rows >= 0 && first_row + rows <= packing.rows())
      << "rows " << first_row << " + " << rows << " of " << packing.rows();
  BatchCounts counts;
  for (int64_t row = 0; row < room; ++row) {
    const int64_t begin = row * row_len;
    for (int64_t k = 0; k < own.chunks(); ++k) {
      const int64_t first = begin + own.chunk_begin(k);
      const Stretch chunk{first, first + own.chunk(), row * own.local_row() + k * own.chunk()};
      int64_t at = begin;
      if (row < rows) {
        for (const int32_t sample : packing.row(first_row + row)) {
          counts += FillSample(store, sample, at, chunk, arrays);
          at += store.length(sample);
        }
      }
      FillPadding(chunk.Within(at, begin + row_len), arrays);
    }
  }
  return counts;
}

}  // namespace temper
