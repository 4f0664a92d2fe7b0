// ColumnarRowReader: the rows of a Parquet or Arrow file (format/columnar_reader.h) as those of other data files. A
// row's line is its number. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/row_reader.h"
#include "format/columnar_reader.h"

namespace temper {

class ColumnarRowReader final : public RowReader {
 public:
  static RowLimits LimitsFor(Bytes max_row) {
    return {.bytes = max_row, .values = kMaxRowValues, .parts = kMaxRowParts};
  }
  // `reader` has LimitsFor(max_row).
  ColumnarRowReader(std::unique_ptr<ColumnarReader> reader, Bytes max_row)
      : reader_(std::move(reader)), max_row_(max_row), columns_(reader_->columns()) {}

  Result<bool> Next(RawRow& row) override;
  Bytes bytes_read() const override { return reader_->bytes_read(); }
  RowLayout layout() const override { return RowLayout::kColumns; }
  const std::vector<std::string>* columns() const override { return &columns_; }
  const std::vector<std::string>* names() const override { return &reader_->names(); }
  const std::string& path() const override { return reader_->path(); }

 private:
  const std::unique_ptr<ColumnarReader> reader_;
  const Bytes max_row_;
  const std::vector<std::string> columns_;
  JsonRow row_;
  int64_t rows_ = 0;
};

}  // namespace temper
