// ParquetRowReader: the rows of a Parquet file (format/parquet/parquet_reader.h) as those of other data files. A row's
// line is its number. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/row_reader.h"
#include "format/parquet/parquet_reader.h"

namespace temper {

class ParquetRowReader final : public RowReader {
 public:
  // Errors: as ParquetReader::Open.
  static Result<std::unique_ptr<RowReader>> Open(std::unique_ptr<RandomAccessFile> file, Bytes max_row);

  Result<bool> Next(RawRow& row) override;
  Bytes bytes_read() const override { return reader_->bytes_read(); }
  RowLayout layout() const override { return RowLayout::kParquet; }
  const std::vector<std::string>* columns() const override { return &columns_; }
  const std::vector<std::string>* names() const override { return &reader_->names(); }
  const std::string& path() const override { return reader_->path(); }

 private:
  ParquetRowReader(std::unique_ptr<ParquetReader> reader, Bytes max_row)
      : reader_(std::move(reader)), max_row_(max_row), columns_(reader_->columns()) {}

  const std::unique_ptr<ParquetReader> reader_;
  const Bytes max_row_;
  const std::vector<std::string> columns_;
  ParquetRow row_;
  int64_t rows_ = 0;
};

}  // namespace temper
