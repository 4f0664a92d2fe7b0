// TableReader: the rows of a CSV or TSV table, as texts of JSON objects whose keys are the header's names.
//
// As RFC 4180 and Python's csv module: cells in double quotes may hold delimiters, line ends and doubled quotes; a
// quote within a cell that does not begin with one is itself; rows end with LF, CRLF or CR; blank lines do not count.
// Every row has as many cells as the header. What RFC 4180 forbids, text behind a closing quote, is an error of the
// row.
//
// Cells are strings. Those of `weight` become numbers. Those of fields that are lists (messages, conversations, tools,
// input_ids, labels, attention_mask, history) or objects (chat_template_kwargs) are read as JSON, and so are those of a
// column into which a name of RowColumns leads. An empty cell of all these is no field. Columns without a name, such as
// an index, are left out.
//
// Memory is bounded by the longest row. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "data/raw_row.h"
#include "data/text_cursor.h"
#include "format/row_columns.h"

namespace temper {

class TableReader {
 public:
  // Reads the header. `columns`: which columns hold which fields. `text` must outlive the reader. Errors: no header; a
  // name that is there twice; columns that are separated by something else.
  static Result<std::unique_ptr<TableReader>> Open(TextCursor& text, char delimiter, Bytes max_row,
                                                   const RowColumns& columns = {});

  // False after the last row. An error is final: the text cannot be read, or a quoted cell never ends.
  Result<bool> Next(RawRow& row);

  const std::vector<std::string>& columns() const { return columns_; }

 private:
  static constexpr size_t kMaxColumns = 4096;  // as keys of an object
  enum class Cell : uint8_t { kText, kNumber, kJson };

  TableReader(TextCursor& text, char delimiter, Bytes max_row)
      : text_(text), delimiter_(delimiter), max_row_(max_row) {}

  Status ReadHeader(const RowColumns& columns);
  // Reads the cells of the next row that is not blank into cells_ and count_.
  Result<bool> ReadCells(RawRow& row);
  std::string Object() const;  // of cells_, as JSON

  TextCursor& text_;
  const char delimiter_;
  const Bytes max_row_;
  std::vector<std::string> columns_;
  std::vector<Cell> kinds_;         // of each column
  std::vector<std::string> cells_;  // of the current row; those beyond kMaxColumns are only counted
  size_t count_ = 0;
};

}  // namespace temper
