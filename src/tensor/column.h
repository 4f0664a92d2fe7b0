// Columns: the inputs of a Program that are made from data, by name. A graph declares those that it reads, a filler
// (data/column_fillers.h) writes them.
#pragma once

#include "tensor/dtype.h"

namespace temper {

struct ColumnSpec {
  const char* name;  // of the input
  DType dtype;
  // One value for each token of a micro-batch. What belongs to a sequence is at all of its tokens.
};

inline constexpr ColumnSpec kTokenColumn = {"token", DType::kI32};
inline constexpr ColumnSpec kTargetColumn = {"target", DType::kI32};      // the token to predict, -1: no loss here
inline constexpr ColumnSpec kNextColumn = {"next", DType::kI32};          // the document's next token, -1 at its end
inline constexpr ColumnSpec kWeightColumn = {"weight", DType::kF32};      // how much the loss of that prediction counts
inline constexpr ColumnSpec kPositionColumn = {"position", DType::kI32};  // restarts with each document
inline constexpr ColumnSpec kDocumentStartColumn = {"document_start", DType::kI32};  // place of its first token
inline constexpr ColumnSpec kDocumentLengthColumn = {"document_length", DType::kI32};
// Of samples of several documents: the place of the first token of the first one.
inline constexpr ColumnSpec kSampleStartColumn = {"sample_start", DType::kI32};
// The sum of the log-probabilities of a document's targets under another model (TokenStore::score).
inline constexpr ColumnSpec kReferenceColumn = {"reference", DType::kF32};
// Of a batch, its samples divided by the tokens of their first documents that a mean of its own counts: times that, a
// mean over samples of sums over these tokens is a mean over the tokens.
inline constexpr ColumnSpec kNllScaleColumn = {"nll_scale", DType::kF32};
// Of a rated answer, the batch's samples divided by those that are rated alike; negative: it is one to avoid.
inline constexpr ColumnSpec kRatingColumn = {"rating", DType::kF32};
// The mean of what the model has raised the log-probabilities of a batch's answers by, each after another one's prompt,
// since the start; 0 if that is negative.
inline constexpr ColumnSpec kKlColumn = {"kl", DType::kF32};
// By how much the first of a sample's documents is better.
inline constexpr ColumnSpec kMarginColumn = {"margin", DType::kF32};
// At the last token of a sample its class, -1 elsewhere.
inline constexpr ColumnSpec kLabelColumn = {"label", DType::kI32};
inline constexpr ColumnSpec kPresentColumn = {"present", DType::kF32};  // 1; 0 in padding

}  // namespace temper
