// Column fillers: how each column (tensor/column.h) is made from tokenised samples. A new column is a line of the table
// in column_fillers.cc. Pure functions; any thread; they allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "data/token_store.h"
#include "tensor/column.h"

namespace temper {

// What all samples of a step have alike.
struct StepValues {
  float nll_scale = 0;      // kNllScaleColumn
  float good = 0, bad = 0;  // the samples divided by those that are rated good, and bad
  float kl = 0;             // kKlColumn
};

// Consecutive tokens of one document: of a part of a sample, or of a sample that is not in parts.
struct SampleSlice {
  TokenSample sample;
  int64_t start;         // the place of the sample's first token in the whole rows of its micro-batch
  int64_t begin, end;    // tokens [begin, end) of the sample are the document
  int64_t first, count;  // tokens [first, first + count)
  float score = 0;       // of the part (TokenStore::score)
  bool judged = false;   // as a whole: it has a class, or its parts have ranks
  SampleValues values = {};
  StepValues step = {};

  // The last token of a document predicts nothing.
  bool predicts(int64_t i) const { return i + 1 < end && sample.supervised(i + 1); }
  // What a sample as a whole is judged by.
  bool is_judged(int64_t i) const { return judged && i + 1 == end; }
};

struct ColumnFiller {
  ColumnSpec column;
  // Write `count` values of column.dtype.
  void (*fill)(const SampleSlice& slice, std::byte* out);
  void (*pad)(int64_t place, int64_t count, std::byte* out);  // for no sample, from `place` in whole rows on

  size_t value_bytes() const { return static_cast<size_t>(SizeOf(column.dtype)); }
};

// nullptr if data fills no such input.
const ColumnFiller* FillerOf(std::string_view input);

// A column of a micro-batch; the caller owns the memory.
struct ColumnArray {
  const ColumnFiller* filler;
  std::span<std::byte> values;
};

}  // namespace temper
