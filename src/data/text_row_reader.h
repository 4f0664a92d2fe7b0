// TextRowReader: the rows of a text, JSON or a table (data/row_reader.h has the layouts). Memory is bounded by the
// longest row. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "data/row_reader.h"
#include "data/table_reader.h"
#include "data/text_cursor.h"
#include "format/row_columns.h"

namespace temper {

class TextRowReader final : public RowReader {
 public:
  // Errors: as OpenRows.
  static Result<std::unique_ptr<RowReader>> Open(std::unique_ptr<RandomAccessFile> file, Bytes max_row,
                                                 const RowColumns& columns);

  Result<bool> Next(RawRow& row) override;
  Bytes bytes_read() const override { return text_.bytes_read(); }
  RowLayout layout() const override { return layout_; }
  const std::vector<std::string>* columns() const override { return table_ ? &table_->columns() : nullptr; }
  const std::string& path() const override { return text_.path(); }

 private:
  // Finds the end of one JSON value, and whether it is too deep or too wide to parse.
  class ValueScanner;

  TextRowReader(std::unique_ptr<TextStream> text, Bytes max_row) : text_(std::move(text)), max_row_(max_row) {}

  Status Probe(const RowColumns& columns);
  Result<bool> NextLine(RawRow& row);
  Result<bool> NextValue(RawRow& row);
  Status ReadValue(RawRow& row);

  TextCursor text_;
  const Bytes max_row_;
  RowLayout layout_ = RowLayout::kLines;
  std::unique_ptr<TableReader> table_;  // of layout kTable
  int64_t rows_ = 0;
  bool in_array_ = false;  // the opening bracket has been read
  bool done_ = false;
};

}  // namespace temper
