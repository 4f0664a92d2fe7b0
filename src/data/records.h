// RecordReader: a data file (.jsonl, .json, .csv or .tsv, compressed or not, or .parquet) as a stream of rows, each
// parsed into a record. Text files are data/document_reader.h's.
//
//   auto reader = RecordReader::Open(PosixEnv(), "train.jsonl");
//   RawRow row;
//   while (*(*reader)->Next(row)) { Result<Record> record = (*reader)->Parse(row); ... }
//
// The format is detected once per file, from the first row with a known one; every row must then have it. NaN and
// Infinity, which Python writes but JSON lacks, are read as null. Memory is bounded by the longest row.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "data/column_map.h"
#include "data/record.h"
#include "data/row_reader.h"
#include "format/row_reading.h"

namespace temper {

class RecordReader {
 public:
  // `reading`: where rows are not as Temper expects them. Errors: as OpenRows, a file whose first rows have no known
  // format, a column of a format's needed fields that none of them has.
  static Result<std::unique_ptr<RecordReader>> Open(Env& env, const std::string& path, const RowReading& reading = {},
                                                    RowUse use = RowUse::kAnswers);

  // False after the last row. An error is final. One thread at a time.
  Result<bool> Next(RawRow& row);

  // Parses the row. Any thread, but one row by one thread at a time.
  Result<Record> Parse(const RawRow& row) const;

  // Error: one of `columns` was in no row that has been parsed. `first`: these were only the first so many of the file.
  // `needed_only`: of a field without which no format is recognised; others may be in later rows.
  Status CheckColumns(std::optional<size_t> first = std::nullopt, bool needed_only = false) const {
    return columns_.CheckFound(path_, first, needed_only);
  }

  // Of the file, some of them beyond the next row.
  Bytes bytes_read() const { return rows_->bytes_read(); }

  RecordFormat format() const { return format_; }
  // The row that decided, as PlaceOfRow says.
  std::string format_place() const { return Place(format_row_); }
  const std::string& path() const { return path_; }
  // As RowReader's.
  const std::vector<std::string>* columns() const { return rows_->columns(); }
  const std::vector<std::string>* names() const { return rows_->names(); }

 private:
  RecordReader(std::string path, const RowReading& reading)
      : path_(std::move(path)), reading_(reading), columns_(reading.columns) {}
  // Gives the row's fields and speakers their own names.
  void Rename(OrderedJson& row) const;
  Status Detect(RowUse use);
  std::string Place(const RawRow& row) const;
  std::string Where(const RawRow& row) const;

  const std::string path_;
  const RowReading reading_;
  ColumnMap columns_;
  RowUse use_ = RowUse::kAnswers;
  RecordFormat format_ = RecordFormat::kText;
  RawRow format_row_{.number = 1, .line = 1};  // without its text
  // What Detect has made of that row, for the first Parse of it. Only the thread that parses that row touches it.
  mutable std::optional<OrderedJson> parsed_format_row_;
  std::unique_ptr<RowReader> rows_;
  std::deque<RawRow> seen_;  // rows read to detect the format, not handed out yet
};

}  // namespace temper
