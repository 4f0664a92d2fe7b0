// ArrowNode: a column of an Arrow file, and what it holds, as a tree.
// Source: arrow/format/Schema.fbs and Columnar.rst.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/arrow/flat_reader.h"
#include "format/parquet/parquet_schema.h"

namespace temper {

struct ArrowNode {
  enum class Kind : uint8_t { kNull, kBool, kNumber, kFixedBytes, kText, kList, kFixedList, kStruct, kMap };

  std::string name, key;  // `"name": `, as JSON
  std::string path;       // "messages.item.role"
  Kind kind = Kind::kNull;
  ParquetType type;                 // of a value: what it means
  bool is_float = false;            // of kNumber
  bool milliseconds = false;        // a date that counts them
  int width = 0;                    // bytes of a value
  bool wide = false;                // offsets of texts and lists have 64 bits
  int64_t elements = 0;             // of each kFixedList
  std::vector<ArrowNode> children;  // a struct's fields; a list's element; of a map a struct of key and value
};

// The root, a struct of the columns, of a table Schema. Errors (without a place): a type that is not read, a name
// twice, columns that are too many or too deep. REQUIRES: afterwards `in` is ok(), else the result means nothing.
Result<ArrowNode> ReadArrowSchema(FlatReader& in, FlatTable schema);

}  // namespace temper
