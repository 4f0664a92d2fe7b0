// The one thing in a batch that can make a kernel read outside of its operands: a token's row of the embedding table.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace temper {

// OK, or an error naming the first token t whose row index_T[t] + offset is not in [0, rows).
Status CheckRows(const int32_t* index_T, int64_t T, int64_t offset, int64_t rows);
Status OutsideOfTable(int64_t row, int64_t token, int64_t rows);

}  // namespace temper
