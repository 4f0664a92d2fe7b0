// What recurrences with a state per head agree on.
#pragma once

#include <cstdint>

namespace temper {

// Tokens that are computed together, by products of matrices; the state is carried from chunk to chunk. Chunks count
// from a document's first token.
inline constexpr int64_t kStateChunk = 64;

}  // namespace temper
