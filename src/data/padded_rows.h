// Padded rows: to which of a few lengths the rows of a micro-batch are padded (compile/run/row_lengths.h): to the
// shortest that holds them all. Allocates nothing.
#pragma once

#include <cstdint>
#include <span>

#include "data/packing.h"
#include "data/token_store.h"

namespace temper {

// Tokens of the longest of rows [first, first + count); 0 of none.
int64_t LongestRow(const TokenStore& store, const Packing& packing, int64_t first, int64_t count);

// The index of the last of `lengths`, longest first, that holds `tokens`. REQUIRES: the first one does.
size_t ShortestThatHolds(std::span<const int64_t> lengths, int64_t tokens);

// The part of an epoch's places that hold tokens, 0 to 1, where micro-batches have `rows` rows.
double FilledPart(const TokenStore& store, const Packing& packing, int64_t rows, std::span<const int64_t> lengths);

}  // namespace temper
