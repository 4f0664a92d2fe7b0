// RowReader: cuts a data file into the texts of its rows, in order, without parsing them.
//
// The layout is detected from the bytes, not from the file's name, except that a table is one by its name:
//   lines   one JSON value per line (.jsonl), blank lines ignored; a broken line costs that line only. A .jsonl file
//           whose first value is indented over several lines is "values" all the same
//   array   one JSON array whose elements are the rows (.json)
//   values  whole JSON values one after another, each over several lines (also a single pretty-printed row)
//   table   CSV or TSV (.csv, .tsv), whose rows become JSON objects (data/table_reader.h)
// A byte order mark, CRLF line ends and gzip and zstd files are accepted (format/text_stream.h). Memory is bounded by
// the longest row (at most `max_row`). One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "data/raw_row.h"
#include "data/table_reader.h"
#include "data/text_cursor.h"
#include "format/row_columns.h"

namespace temper {

enum class RowLayout : uint8_t { kLines, kArray, kValues, kTable };

class RowReader {
 public:
  // A row of 64 MiB is some 15 million tokens: too long to train on in one piece.
  static constexpr Bytes kMaxRow = MiB(64);

  // Errors: the file cannot be opened, is empty, or has another format (Parquet, UTF-16, not JSON).
  // `columns`: which of a table's columns hold which fields.
  static Result<std::unique_ptr<RowReader>> Open(Env& env, const std::string& path, Bytes max_row = kMaxRow,
                                                 const RowColumns& columns = {});

  // False after the last row. An error is final: the file cannot be read or unpacked, or its array or a quoted cell is
  // broken so that the next row cannot be found.
  Result<bool> Next(RawRow& row);

  Bytes bytes_read() const { return text_.bytes_read(); }  // of the file
  RowLayout layout() const { return layout_; }
  // Of a table, else null.
  const std::vector<std::string>* columns() const { return table_ ? &table_->columns() : nullptr; }
  const std::string& path() const { return text_.path(); }

 private:
  // Finds the end of one JSON value, and whether it is too deep or too wide to parse.
  class ValueScanner;

  RowReader(std::unique_ptr<TextStream> text, Bytes max_row) : text_(std::move(text)), max_row_(max_row) {}

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
