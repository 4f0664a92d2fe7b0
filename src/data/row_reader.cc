#include "data/row_reader.h"

#include <fmt/core.h>

namespace temper {

std::string PlaceOfRow(RowLayout layout, const RawRow& row) {
  if (layout == RowLayout::kLines) return fmt::format("line {}", row.line);
  if (layout == RowLayout::kColumns) return fmt::format("row {}", row.number);
  return fmt::format("row {} (line {})", row.number, row.line);
}

Status TooLong(const std::string& place, Bytes max_row) {
  return Corrupt(fmt::format("{}: a row longer than {}: split it", place, ToString(max_row)));
}

Status TooManyValues(const std::string& place) {
  return Corrupt(fmt::format("{}: a row of more than 4 million values: split it", place));
}

Status TooManyParts(const std::string& place) {
  return Corrupt(fmt::format("{}: a row of more than a million texts, lists and objects: split it", place));
}

}  // namespace temper
