#include "data/parquet_row_reader.h"

#include <fmt/core.h>

#include "format/quoted.h"

namespace temper {

Result<std::unique_ptr<RowReader>> ParquetRowReader::Open(std::unique_ptr<RandomAccessFile> file, Bytes max_row) {
  const ParquetRowLimits limits{.bytes = max_row, .values = kMaxRowValues, .parts = kMaxRowParts};
  TEMPER_ASSIGN_OR_RETURN(auto reader, ParquetReader::Open(std::move(file), limits));
  return std::unique_ptr<RowReader>(new ParquetRowReader(std::move(reader), max_row));
}

Result<bool> ParquetRowReader::Next(RawRow& row) {
  TEMPER_ASSIGN_OR_RETURN(const bool more, reader_->Next(row_));
  row.number = row.line = ++rows_;
  row.text.swap(row_.json);
  row.error = OkStatus();
  if (!more || row_.fault == ParquetRowFault::kNone) return more;
  row.text.clear();
  const std::string place = fmt::format("{} {}", path(), PlaceOfRow(layout(), row));
  switch (row_.fault) {
    case ParquetRowFault::kTooLong:
      row.error = TooLong(place, max_row_);
      break;
    case ParquetRowFault::kTooManyValues:
      row.error = TooManyValues(place);
      break;
    case ParquetRowFault::kTooManyParts:
      row.error = TooManyParts(place);
      break;
    default:
      row.error = Corrupt(fmt::format("{}: the text in column {} is not UTF-8", place, Quoted(row_.column)));
  }
  return true;
}

}  // namespace temper
