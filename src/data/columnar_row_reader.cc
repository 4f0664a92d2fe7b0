#include "data/columnar_row_reader.h"

#include <fmt/core.h>

#include "format/quoted.h"

namespace temper {

Result<bool> ColumnarRowReader::Next(RawRow& row) {
  TEMPER_ASSIGN_OR_RETURN(const bool more, reader_->Next(row_));
  row.number = row.line = ++rows_;
  row.text.swap(row_.json);
  row.error = OkStatus();
  if (!more || row_.fault == RowFault::kNone) return more;
  row.text.clear();
  const std::string place = fmt::format("{} {}", path(), PlaceOfRow(layout(), row));
  switch (row_.fault) {
    case RowFault::kTooLong:
      row.error = TooLong(place, max_row_);
      break;
    case RowFault::kTooManyValues:
      row.error = TooManyValues(place);
      break;
    case RowFault::kTooManyParts:
      row.error = TooManyParts(place);
      break;
    default:
      row.error = Corrupt(fmt::format("{}: the text in column {} is not UTF-8", place, Quoted(row_.column)));
  }
  return true;
}

}  // namespace temper
