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

std::byte* At(const ColumnArray& column, int64_t local) {
  return column.values.data() + static_cast<size_t>(local) * column.filler->value_bytes();
}

// Writes the part of a sample that lies in the stretch; `start`: the place of its first token.
BatchCounts FillSample(const TokenStore& store, int64_t sample, int64_t start, const Stretch& own,
                       std::span<const ColumnArray> columns, const StepValues& step) {
  const TokenSample tokens = store.sample(sample);
  const SampleValues values = store.values(sample);
  BatchCounts counts;
  int64_t part = 0;
  for (int64_t begin = 0, end = 0; begin < tokens.length(); begin = end, ++part) {
    end = tokens.PartEnd(begin);
    const Stretch within = own.Within(start + begin, start + end);
    const SampleSlice slice{.sample = tokens,
                            .start = start,
                            .begin = begin,
                            .end = end,
                            .first = within.begin - start,
                            .count = within.end - within.begin,
                            .score = store.has_scores() ? store.score(sample, part) : 0,
                            .judged = store.sections().has(Section::kLabel) || store.sections().has(Section::kMargin),
                            .values = values,
                            .step = step};
    if (slice.count == 0) continue;
    for (const ColumnArray& column : columns) column.filler->fill(slice, At(column, within.local));
    counts.tokens += slice.count;
    counts.samples += slice.first == 0;
    for (int64_t i = slice.first; i < slice.first + slice.count; ++i) {
      const bool predicts = slice.predicts(i);
      if (!predicts && !slice.is_judged(i)) continue;
      ++counts.supervised;
      counts.weight += predicts ? tokens.weight(i + 1) : kUnitWeight;
    }
  }
  return counts;
}

}  // namespace

int64_t FillInOrder(const TokenStore& store, std::span<const int32_t> samples, int64_t row, int64_t tokens,
                    std::span<const ColumnArray> columns, std::vector<int64_t>* places) {
  int64_t at = 0, placed = 0;
  places->clear();
  const auto pad_to = [&](int64_t end) {
    for (const ColumnArray& column : columns) column.filler->pad(at, end - at, At(column, at));
    at = end;
  };
  for (const int32_t sample : samples) {
    const int64_t length = store.length(sample);
    TEMPER_CHECK(length <= row) << length << " tokens in rows of " << row;
    if (at % row + length > row) pad_to(at - at % row + row);
    if (at + length > tokens) break;
    FillSample(store, sample, at, {at, at + length, at}, columns, {});
    places->push_back(at);
    at += length;
    ++placed;
  }
  pad_to(tokens);
  return placed;
}

int64_t TargetsOfFirstPart(const TokenSample& sample, bool whole) {
  const int64_t end = sample.PartEnd(0);
  if (whole) return end - 1;
  int64_t targets = 0;
  for (int64_t i = 1; i < end; ++i) targets += sample.supervised(i);
  return targets;
}

BatchCounts FillBatch(const TokenStore& store, const Packing& packing, int64_t first_row, int64_t rows, int64_t tokens,
                      std::span<const ColumnArray> columns, const ContextPart& part, const StepValues& step) {
  const int64_t longest = packing.options().max_seq_len, row_len = part.row > 0 ? part.row : longest;
  const ContextPart own{.row = row_len, .ranks = part.ranks, .index = part.index};
  TEMPER_CHECK(row_len <= longest) << "rows of " << row_len << " of " << longest;
  TEMPER_CHECK(part.ranks == 1 || (part.row == row_len && ContextPart::Divides(row_len, part.ranks)))
      << "rows of " << row_len << ", of which " << part.ranks << " ranks share " << part.row;
  for (const ColumnArray& column : columns) {
    TEMPER_CHECK(column.values.size() == static_cast<size_t>(tokens) * column.filler->value_bytes())
        << column.values.size() << " bytes of " << column.filler->column.name << " for " << tokens << " tokens";
  }
  const int64_t room = tokens / own.local_row();
  TEMPER_CHECK(tokens % own.local_row() == 0 && rows <= room)
      << rows << " rows of " << own.local_row() << " in arrays of " << tokens;
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
          counts += FillSample(store, sample, at, chunk, columns, step);
          at += store.length(sample);
        }
      }
      TEMPER_CHECK(at <= begin + row_len) << "row " << first_row + row << " in " << row_len << " tokens";
      const Stretch padding = chunk.Within(at, begin + row_len);
      if (padding.begin == padding.end) continue;
      for (const ColumnArray& column : columns) {
        column.filler->pad(padding.begin, padding.end - padding.begin, At(column, padding.local));
      }
    }
  }
  return counts;
}

}  // namespace temper
