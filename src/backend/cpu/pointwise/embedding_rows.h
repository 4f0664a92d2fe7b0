// Which row of an embedding table a token uses: the only value in a batch that can make a kernel read outside its
// operands.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/attributes.h"

namespace temper {

// The rows [begin, begin + rows) of an embedding table of `whole` rows: all of them unless attributes say
// otherwise. Those of a list may be all that the table has, or left out of it.
struct EmbeddingRows {
  int64_t offset = 0, begin = 0, rows = 0, whole = 0;
  bool only = false;
  // Each listed row and its place in the list, sorted; null: no list. Shared, as copies are made while a kernel runs.
  std::shared_ptr<const std::vector<std::pair<int64_t, int64_t>>> listed;

  // REQUIRES: the op's rule has accepted the attributes.
  EmbeddingRows(const Attributes& attributes, int64_t table_rows);

  // OK, or an error naming the first token t whose row index_T[t] + offset is not in [0, whole).
  Status Check(const int32_t* index_T, int64_t T) const;
  // That row's index in the table, or -1 if it is not among its rows. REQUIRES: Check passed.
  int64_t Find(int64_t index) const {
    if (listed != nullptr) {
      const int64_t place = PlaceInList(index + offset);
      if (only) return place;
      if (place >= 0) return -1;
    }
    const int64_t row = index + offset - begin;
    return row >= 0 && row < rows ? row : -1;
  }

 private:
  int64_t PlaceInList(int64_t row) const;
};

}  // namespace temper
