#include "format/trained_rows.h"

namespace temper {

std::string TrainedRows::name() const {
  return std::string(kAdapterPrefix) + module + ".token_adapter.trainable_tokens_delta";
}
std::string TrainedRows::original() const {
  return std::string(kAdapterPrefix) + module + kOriginalRows;
}
std::string TrainedRows::words() const {
  return std::string(kAdapterPrefix) + module + ".token_adapter.words";
}

std::vector<StoredWeight> StoredRows(std::span<const TrainedRows> all) {
  std::vector<StoredWeight> stored;
  for (const TrainedRows& rows : all) {
    stored.push_back({rows.name(), rows.shape(), WeightSource(FileTensor{.name = rows.name(), .shape = rows.shape()})});
  }
  return stored;
}

std::vector<StoredWeight> ModelRows(std::span<const TrainedRows> all, bool start) {
  std::vector<StoredWeight> stored;
  for (const TrainedRows& rows : all) {
    stored.push_back({rows.original(), rows.shape(), rows.source});
    if (start) stored.push_back({rows.name(), rows.shape(), rows.source});
  }
  return stored;
}

void FillWords(std::span<const int64_t> rows, const PartView& part) {
  DispatchFloat(part.view.type.dtype, [&]<class T>() {
    const std::span<T> x = part.view.as<T>();
    const int64_t n = std::ssize(rows), columns = part.columns();
    for (int64_t line = 0; line < part.rows(); ++line) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t at = part.RowBegin(line) + c;
        const bool is_word = rows[static_cast<size_t>(at % n)] == at / n;
        x[static_cast<size_t>(line * columns + c)] = FromFloat<T>(is_word ? 1.0f : 0.0f);
      }
    }
  });
}

}  // namespace temper
