// RowReader: cuts a data file into the texts of its rows, in order, without parsing them (data/open_rows.h opens one).
//
// The layout is detected from the bytes, not from the file's name, except that a table is one by its name:
//   lines   one JSON value per line (.jsonl), blank lines ignored; a broken line costs that line only. A .jsonl file
//           whose first value is indented over several lines is "values" all the same
//   array   one JSON array whose elements are the rows (.json)
//   values  whole JSON values one after another, each over several lines (also a single pretty-printed row)
//   table   CSV or TSV (.csv, .tsv), whose rows become JSON objects (data/table_reader.h)
//   columns a Parquet or Arrow file, whose rows become JSON objects (format/columnar_reader.h)
// In texts a byte order mark, CRLF line ends and gzip and zstd files are accepted (format/text_stream.h). Memory is
// bounded by the longest row (at most `max_row`), beside pieces of all columns. One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "data/raw_row.h"

namespace temper {

enum class RowLayout : uint8_t { kLines, kArray, kValues, kTable, kColumns };

// Parsed, a value takes tens of bytes and a text of a conversation hundreds, however short they are in the file: with
// these bounds a row takes some 300 MB beside a few times its own size. Three lists of a million tokens fit.
inline constexpr int64_t kMaxRowValues = 4'000'000;
inline constexpr int64_t kMaxRowParts = 1'000'000;  // texts, keys, lists and objects

class RowReader {
 public:
  // A row of 64 MiB is some 15 million tokens: too long to train on in one piece.
  static constexpr Bytes kMaxRow = MiB(64);

  virtual ~RowReader() = default;

  // False after the last row. An error is final: the file cannot be read or unpacked, or its array, a quoted cell or a
  // page is broken so that the next row cannot be found.
  virtual Result<bool> Next(RawRow& row) = 0;

  virtual Bytes bytes_read() const = 0;  // of the file
  virtual RowLayout layout() const = 0;
  // Of a table and of columns, else null.
  virtual const std::vector<std::string>* columns() const = 0;
  // The names of all that a row may have, at any depth, where the file lists them, else null.
  virtual const std::vector<std::string>* names() const { return nullptr; }
  virtual const std::string& path() const = 0;
};

// "line 12", "row 3 (line 40)" if a row is no line, "row 3" of a file without lines.
std::string PlaceOfRow(RowLayout layout, const RawRow& row);

// Errors of a row that is not read.
Status TooLong(const std::string& place, Bytes max_row);
Status TooManyValues(const std::string& place);
Status TooManyParts(const std::string& place);

}  // namespace temper
