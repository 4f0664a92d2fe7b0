#include "data/open_rows.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "data/columnar_row_reader.h"
#include "data/text_row_reader.h"
#include "format/parquet/parquet_reader.h"

namespace temper {

Result<std::unique_ptr<RowReader>> OpenRows(Env& env, const std::string& path, Bytes max_row,
                                            const RowColumns& columns) {
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForRead(path));
  std::array<char, kParquetMagic.size()> head = {};
  const auto n = static_cast<size_t>(std::min<int64_t>(file->size().v, head.size()));
  if (n > 0) TEMPER_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(head).first(n))));
  const std::string_view magic(head.data(), n);
  if (magic == kParquetMagic || magic == kEncryptedParquetMagic) {
    TEMPER_ASSIGN_OR_RETURN(auto reader, ParquetReader::Open(std::move(file), ColumnarRowReader::LimitsFor(max_row)));
    return std::unique_ptr<RowReader>(std::make_unique<ColumnarRowReader>(std::move(reader), max_row));
  }
  return TextRowReader::Open(std::move(file), max_row, columns);
}

}  // namespace temper
