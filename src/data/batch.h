// Batch: fills the columns of a micro-batch from packed rows. Shapes are fixed: T = rows * max_seq_len tokens, rows one
// after another; or of shorter rows, where what is in them fits.
//
// On a rank of cp (tensor/context_part.h) the arrays hold its own tokens, with values as in whole rows: a
// document_start is then a place in whole rows, too.
//
// Padding: token 0, target -1, weight 0, position 0, length 1, document_start its own place; nothing attends to it, and
// it attends only to itself. The last token of a document (a sample, or a part of one) predicts
// nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/column_fillers.h"
#include "data/packing.h"
#include "data/token_store.h"
#include "tensor/context_part.h"

namespace temper {

struct BatchCounts {       // of this rank's tokens
  int64_t tokens = 0;      // real ones
  int64_t supervised = 0;  // targets that are not -1, and sequences that are judged
  int64_t weight = 0;      // their weights, in units of 2^-16 (token_weight.h)
  int64_t samples = 0;     // those whose first token is here
  BatchCounts& operator+=(const BatchCounts& o) {
    samples += o.samples;
    tokens += o.tokens;
    supervised += o.supervised;
    weight += o.weight;
    return *this;
  }
};

// Fills in rows [first_row, first_row + rows) of the epoch that `packing` holds; the rest of `columns`, of `tokens`
// values each, becomes padding. `part`: this rank's tokens of each row, and how long rows are there (0:
// max_seq_len); by default all. REQUIRES: part.row is given if rows are split, and rows fit; `tokens` is a multiple of
// this rank's tokens per row, and holds the rows. Allocates nothing.
BatchCounts FillBatch(const TokenStore& store, const Packing& packing, int64_t first_row, int64_t rows, int64_t tokens,
                      std::span<const ColumnArray> columns, const ContextPart& part = {}, const StepValues& step = {});

// Fills arrays of `tokens` values, rows of `row` tokens, with as many of `samples` as have room there, one after
// another; returns how many. A sample that does not fit in a row begins the next one. places[i]: that of the first
// token of samples[i]. REQUIRES: none is longer than `row`, which divides `tokens`. Allocates only where `places` has
// no room.
int64_t FillInOrder(const TokenStore& store, std::span<const int32_t> samples, int64_t row, int64_t tokens,
                    std::span<const ColumnArray> columns, std::vector<int64_t>* places);

// The targets in the first part of a sample: those that are supervised, or of `whole` all of its tokens but the last.
int64_t TargetsOfFirstPart(const TokenSample& sample, bool whole);

}  // namespace temper
