// Attributes of ops that know how rows are dealt over the mesh axis cp (tensor/context_part.h): the tokens of a whole
// row, `ranks`, and `index` of this one.
#pragma once

#include "graph/attributes.h"
#include "tensor/context_part.h"

namespace temper {

// The row's length is attribute `row_key`. REQUIRES: it is present if `ranks` is.
inline ContextPart ContextPartOf(const Attributes& a, const char* row_key, const char* index_key = "index") {
  return {.row = a.IntOr(row_key, 1), .ranks = a.IntOr("ranks", 1), .index = a.IntOr(index_key, 0)};
}

// Whether the attributes say how rows are dealt, and no place of `tokens` local tokens overflows.
inline bool GoodContext(const Attributes& a, const char* row_key, int64_t tokens) {
  constexpr int64_t kMostTokens = int64_t{1} << 40, kMostRanks = 1 << 20;
  const int64_t ranks = a.IntOr("ranks", 0), row = a.IntOr(row_key, 0);
  return ranks >= 2 && ranks <= kMostRanks && row <= kMostTokens && tokens <= kMostTokens &&
         ContextPart::Divides(row, ranks) && a.IntOr("index", ranks) < ranks;
}

}  // namespace temper
