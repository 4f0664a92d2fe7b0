// Batch: the arrays a training step reads, filled from packed rows. Shapes are fixed: T = rows * max_seq_len tokens,
// rows one after another.
//
//   token_T            the input
//   target_T           the token to predict at position i (token i+1 of its sample) if that is supervised, else -1
//   position_T         place in its sample, from 0
//   weight_T           how much the loss of that prediction counts, an exact multiple of 2^-16; 0 if target is -1
//   document_start_T   index in the T axis of its sample's first token: token i attends to [document_start_T[i], i]
//   document_length_T  tokens of its sample, for models whose rotary embedding goes by it
//
// On a rank of cp (tensor/context_part.h) the arrays hold its own tokens, with targets, positions and lengths of the
// whole rows; document_start_T is then a place in whole rows, too.
//
// Padding: token 0, target -1, weight 0, position 0, length 1, document_start its own index; nothing attends to it, and
// it attends only to itself. The last token of a sample predicts nothing.
#pragma once

#include <cstdint>
#include <span>

#include "data/packing.h"
#include "data/token_store.h"
#include "tensor/context_part.h"

namespace temper {

// Spans of one length; the caller owns the memory. weight_T and document_length_T are empty if they are not wanted.
struct BatchArrays {
  std::span<int32_t> token_T, target_T, position_T, document_start_T;
  std::span<float> weight_T = {};
  std::span<int32_t> document_length_T = {};
};

struct BatchCounts {       // of this rank's tokens
  int64_t tokens = 0;      // real ones
  int64_t supervised = 0;  // targets that are not -1
  int64_t weight = 0;      // sum of their weights, in units of 2^-16 (token_weight.h): the loss is divided by it
  BatchCounts& operator+=(const BatchCounts& o) {
    tokens += o.tokens;
    supervised += o.supervised;
    weight += o.weight;
    return *this;
  }
};

// Fills in rows [first_row, first_row + rows) of the epoch that `packing` holds; the rest of `arrays` becomes padding.
// `part`: this rank's tokens of each row; by default all. REQUIRES: part.row is max_seq_len if rows are split; the
// arrays' length is a multiple of this rank's tokens per row, and holds the rows. Allocates nothing.
BatchCounts FillBatch(const TokenStore& store, const Packing& packing, int64_t first_row, int64_t rows,
                      const BatchArrays& arrays, const ContextPart& part = {});

}  // namespace temper
