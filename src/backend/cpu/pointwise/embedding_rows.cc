#include "backend/cpu/pointwise/embedding_rows.h"

#include <fmt/core.h>

namespace temper {

Status EmbeddingRows::Check(const int32_t* index_T, int64_t T) const {
  for (int64_t t = 0; t < T; ++t) {
    if (const int64_t row = index_T[t] + offset; row < 0 || row >= whole) {
      return InvalidArgument(fmt::format(
          "token {} of the batch asks for row {} of an embedding table of {} rows: the tokenizer does not belong "
          "to this model, or a sequence is longer than the model has positions",
          t, row, whole));
    }
  }
  return OkStatus();
}

}  // namespace temper
