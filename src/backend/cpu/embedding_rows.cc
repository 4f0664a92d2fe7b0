#include "backend/cpu/embedding_rows.h"

#include <fmt/format.h>

namespace temper {

Status OutsideOfTable(int64_t row, int64_t token, int64_t rows) {
  return InvalidArgument(fmt::format(
      "token {} of the batch asks for row {} of an embedding table of {} rows: the tokenizer does not belong "
      "to this model, or a sequence is longer than the model has positions",
      token, row, rows));
}

Status CheckRows(const int32_t* index_T, int64_t T, int64_t offset, int64_t rows) {
  for (int64_t t = 0; t < T; ++t) {
    if (const int64_t row = index_T[t] + offset; row < 0 || row >= rows) return OutsideOfTable(row, t, rows);
  }
  return OkStatus();
}

}  // namespace temper
