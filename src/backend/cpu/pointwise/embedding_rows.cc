#include "backend/cpu/pointwise/embedding_rows.h"

#include <fmt/core.h>

#include <algorithm>

#include "graph/row_list.h"

namespace temper {

EmbeddingRows::EmbeddingRows(const Attributes& attributes, int64_t table_rows)
    : offset(attributes.IntOr("offset", 0)),
      begin(attributes.IntOr("begin", 0)),
      rows(table_rows),
      whole(attributes.IntOr("whole", table_rows)),
      only(attributes.Has("only")) {
  if (!only && !attributes.Has("without")) return;
  const auto parsed = ParseRowList(attributes.String(only ? "only" : "without"));
  TEMPER_CHECK(parsed.ok()) << parsed.status().message();
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const int64_t row : *parsed) places.emplace_back(row, std::ssize(places));
  std::sort(places.begin(), places.end());
  listed = std::make_shared<const std::vector<std::pair<int64_t, int64_t>>>(std::move(places));
}

int64_t EmbeddingRows::PlaceInList(int64_t row) const {
  const auto at = std::lower_bound(listed->begin(), listed->end(), std::pair(row, int64_t{0}));
  return at != listed->end() && at->first == row ? at->second : -1;
}

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
