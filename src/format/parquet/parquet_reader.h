// ParquetReader: the rows of a Parquet file, in order, as texts of JSON objects: lists of structs and structs of lists
// as pyarrow's to_pylist() gives them.
//
//   text             a string; so are bytes that are not said to be text, if they are UTF-8
//   other bytes      {"binary": SIZE}: an object, which nothing takes for a text
//   numbers          integers of any width; float and double in the shortest form that reads back as the same double. NaN
//                    and infinity are null, as in JSON lines
//   times            as Python's isoformat(): "2024-05-17T08:00:00.250000+00:00"; decimals as strings
//   maps             a list of [key, value]
//   null             null: each row has all columns
//
// Memory: of each column a page, its packed form and its dictionary (format/parquet/page_buffer.h bounds their sum), and
// the longest row. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "base/units.h"
#include "format/parquet/column_reader.h"
#include "format/parquet/parquet_footer.h"

namespace temper {

struct ParquetRowLimits {
  Bytes bytes = MiB(64);           // of the JSON text
  int64_t values = 4'000'000;      // in lists, and of columns
  int64_t parts = 1'000'000;       // texts, keys, lists and objects
};

// What is wrong with a row; others of the file may be right.
enum class ParquetRowFault : uint8_t { kNone, kTooLong, kTooManyValues, kTooManyParts, kNotUtf8 };

struct ParquetRow {
  std::string json;
  ParquetRowFault fault = ParquetRowFault::kNone;
  std::string column;  // of kNotUtf8
};

class ParquetReader {
 public:
  // Errors: as ReadParquetFooter.
  static Result<std::unique_ptr<ParquetReader>> Open(std::unique_ptr<RandomAccessFile> file, ParquetRowLimits limits);

  // False after the last row. An error is final, and names the row group and the column.
  Result<bool> Next(ParquetRow& row);

  std::vector<std::string> columns() const;  // names of what a row has
  // Names of the columns and of all fields in them.
  const std::vector<std::string>& names() const { return names_; }
  int64_t rows() const { return footer_.rows; }
  Bytes bytes_read() const;  // of the file
  const std::string& path() const { return file_->path(); }

 private:
  struct RowText;

  ParquetReader(std::unique_ptr<RandomAccessFile> file, ParquetFooter footer, ParquetRowLimits limits);

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
  const ParquetRowLimits limits_;
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
