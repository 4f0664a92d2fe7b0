// ColumnMap: renames the columns of a file's rows to the fields that records are made of (format/row_columns.h), and
// knows which of the columns some row had. Apply may be called from any thread, but on one row by one thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "format/row_columns.h"

namespace temper {

class ColumnMap {
 public:
  explicit ColumnMap(RowColumns columns);

  bool empty() const { return columns_.empty(); }
  const RowColumns& columns() const { return columns_; }
  bool Names(std::string_view field) const { return FindColumn(columns_, field) != nullptr; }

  // A named field is read from its column only: without a value there, the row does not have it. The column, or the
  // object that holds it, is no other field any more.
  void Apply(OrderedJson& row) const;

  // Before Apply: the columns that are there, for errors, are those of the first row that is given. One thread.
  void NoteColumns(const OrderedJson& row);
  // Columns of a table's header are there, though cells may be empty; a row has no others.
  void NoteHeader(const std::vector<std::string>& names);
  bool found_all() const;
  // Error: a column that no row had, or none of the first `rows` if that is not null. `path` names the file. With
  // `needed_only`: of a field without which no format is recognised, or one that a table's header lacks.
  Status CheckFound(const std::string& path, std::optional<size_t> rows, bool needed_only) const;

 private:
  void ApplyTo(OrderedJson& object, std::string_view list) const;

  RowColumns columns_;
  std::unique_ptr<std::atomic<bool>[]> found_;  // of each column
  std::vector<bool> in_no_row_;                 // likewise, if there is a header
  bool noted_ = false;
  std::vector<std::string> shown_, inside_;  // columns of the first row; and all of them, with those in objects
  std::vector<std::string> keys_;            // of its first message
};

}  // namespace temper
