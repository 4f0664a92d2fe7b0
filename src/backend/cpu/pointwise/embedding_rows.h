// Which row of an embedding table a token uses: the only value in a batch that can make a kernel read outside its
// operands.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "graph/attributes.h"

namespace temper {

// The rows [begin, begin + rows) of an embedding table of `whole` rows: all of them unless attributes say
// otherwise.
struct EmbeddingRows {
  int64_t offset = 0, begin = 0, rows = 0, whole = 0;

  EmbeddingRows(const Attributes& attributes, int64_t table_rows)
      : offset(attributes.IntOr("offset", 0)),
        begin(attributes.IntOr("begin", 0)),
        rows(table_rows),
        whole(attributes.IntOr("whole", table_rows)) {}

  // OK, or an error naming the first token t whose row index_T[t] + offset is not in [0, whole).
  Status Check(const int32_t* index_T, int64_t T) const;
  // That row's index in the table, or -1 if it is not among its rows. REQUIRES: Check passed.
  int64_t Find(int64_t index) const {
    const int64_t row = index + offset - begin;
    return row >= 0 && row < rows ? row : -1;
  }
};

}  // namespace temper
