// ParquetReader: the rows of a Parquet file (format/columnar_reader.h).
//
// Memory: of each column a page, its packed form and its dictionary (format/parquet/page_buffer.h bounds their sum),
// and the longest row. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "base/units.h"
#include "format/columnar_reader.h"
#include "format/parquet/column_reader.h"
#include "format/parquet/parquet_footer.h"

namespace temper {

class ParquetReader final : public ColumnarReader {
 public:
  // Errors: as ReadParquetFooter.
  static Result<std::unique_ptr<ParquetReader>> Open(std::unique_ptr<RandomAccessFile> file, RowLimits limits);

  Result<bool> Next(JsonRow& row) override;
  std::vector<std::string> columns() const override;
  const std::vector<std::string>& names() const override { return names_; }
  Bytes bytes_read() const override;
  const std::string& path() const override { return file_->path(); }
  int64_t rows() const { return footer_.rows; }

 private:
  ParquetReader(std::unique_ptr<RandomAccessFile> file, ParquetFooter footer, RowLimits limits);

  bool EndRowGroup();  // checks that nothing is left of it
  bool BeginRowGroup();
  bool Write(const ParquetNode& node, RowText& out);
  bool WriteList(const ParquetNode& node, RowText& out);  // or a map
  bool WriteValue(const ParquetNode& node, RowText& out);
  // Goes on in all columns below `node`, of which nothing is there from level `definition` on.
  bool SkipNothing(const ParquetNode& node, int definition);
  bool Disagree(const ParquetNode& node);  // sets the error; gives false
  bool Fail(const Status& status);
  ColumnReader& first(const ParquetNode& node) { return *columns_[static_cast<size_t>(node.first_leaf)]; }

  const std::unique_ptr<RandomAccessFile> file_;
  const ParquetFooter footer_;
  const RowLimits limits_;
  PageCodec codec_;
  PageBudget budget_;
  PageBuffer packed_;
  std::vector<std::unique_ptr<ColumnReader>> columns_;  // of each leaf
  std::vector<std::string> names_;
  size_t row_group_ = 0;  // the next one
  int64_t left_ = 0;      // rows of the current one
  Status status_;
};

}  // namespace temper
