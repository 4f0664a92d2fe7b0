// Columns: the inputs of a Program that are made from data, by name. A graph declares those that it reads, a filler
// (data/column_fillers.h) writes them.
#pragma once

#include "tensor/dtype.h"

namespace temper {

// One value for each token of a micro-batch. What belongs to a sequence is repeated at all of its tokens.
struct ColumnSpec {
  const char* name;  // of the input
  DType dtype;
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
// The batch's samples, divided by the supervised tokens of their first documents. Times this, a mean over samples of
// sums over these tokens is a mean over the tokens.
inline constexpr ColumnSpec kNllScaleColumn = {"nll_scale", DType::kF32};
// For a rated answer: the batch's samples, divided by those with the same rating. Negative: the answer is undesirable.
inline constexpr ColumnSpec kRatingColumn = {"rating", DType::kF32};
// KTO's estimate of the KL divergence from the reference: the mean over the batch, each answer after another row's
// prompt, of its log-probability minus the reference's; 0 if that is negative.
inline constexpr ColumnSpec kKlColumn = {"kl", DType::kF32};
// By how much the first document of a pair is better than the second.
inline constexpr ColumnSpec kMarginColumn = {"margin", DType::kF32};
// A sample's class at its last token, -1 elsewhere.
inline constexpr ColumnSpec kLabelColumn = {"label", DType::kI32};
inline constexpr ColumnSpec kPresentColumn = {"present", DType::kF32};  // 1; 0 in padding

}  // namespace temper
