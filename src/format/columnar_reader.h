// ColumnarReader: the rows of a file that holds them by columns (Parquet, Arrow), in order, as texts of JSON objects:
// lists of structs and structs of lists as pyarrow's to_pylist() gives them.
//
//   text             a string; so are bytes that are not said to be text, if they are UTF-8
//   other bytes      {"binary": SIZE}: an object, which nothing takes for a text
//   numbers          integers of any width; float and double in the shortest form that reads back as the same double.
//                    NaN and infinity are null, as in JSON lines
//   times            as Python's isoformat(): "2024-05-17T08:00:00.250000+00:00"; decimals as strings
//   maps             a list of [key, value]
//   null             null: each row has all columns
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace temper {

struct RowLimits {
  Bytes bytes = MiB(64);       // of the JSON text
  int64_t values = 4'000'000;  // in lists, and of columns
  int64_t parts = 1'000'000;   // texts, keys, lists and objects
};

// What is wrong with a row; others of the file may be right.
enum class RowFault : uint8_t { kNone, kTooLong, kTooManyValues, kTooManyParts, kNotUtf8 };

struct JsonRow {
  std::string json;
  RowFault fault = RowFault::kNone;
  std::string column;  // of kNotUtf8
};

// Writes a row, and finds out in time if it exceeds the limits; then nobody reads its text, which stays bounded.
class RowText {
 public:
  RowText(JsonRow& row, const RowLimits& limits) : row_(row), limits_(limits) {
    row_.json.clear();
    row_.fault = RowFault::kNone;
  }

  // To append to.
  std::string& json() { return row_.json; }
  void Append(std::string_view text) { row_.json += text; }
  void AddPart() { ++parts_; }
  // Before each value, list and struct. False: the row has so many that to skip them would take seconds.
  bool AddValue() {
    ++values_;
    Check();
    return values_ <= kEndless * limits_.values;
  }
  void Check() {
    if (row_.json.size() > static_cast<size_t>(limits_.bytes.v)) Break(RowFault::kTooLong);
    if (values_ > limits_.values) Break(RowFault::kTooManyValues);
    if (parts_ > limits_.parts) Break(RowFault::kTooManyParts);
    if (row_.fault != RowFault::kNone) row_.json.clear();
  }
  void TooLong() { Break(RowFault::kTooLong); }  // a text that is not even read
  // Whether a text of column `path` may be appended; else the row is bad. `must_be_text`: it should be UTF-8.
  bool TakesText(std::string_view text, bool must_be_text, const std::string& path);

 private:
  static constexpr int64_t kEndless = 4;  // times the limit

  void Break(RowFault fault) {
    if (row_.fault == RowFault::kNone) row_.fault = fault;
  }

  JsonRow& row_;
  const RowLimits& limits_;
  int64_t values_ = 0, parts_ = 0;
};

// One thread at a time.
class ColumnarReader {
 public:
  virtual ~ColumnarReader() = default;

  // False after the last row. An error is final, and names the place in the file.
  virtual Result<bool> Next(JsonRow& row) = 0;
  virtual std::vector<std::string> columns() const = 0;  // names of what a row has
  // Names of the columns and of all fields in them.
  virtual const std::vector<std::string>& names() const = 0;
  virtual Bytes bytes_read() const = 0;  // of the file
  virtual const std::string& path() const = 0;
};

}  // namespace temper
