#include "data/open_rows.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "data/columnar_row_reader.h"
#include "data/text_row_reader.h"
#include "format/arrow/arrow_reader.h"
#include "format/parquet/parquet_reader.h"

namespace temper {

Result<std::unique_ptr<RowReader>> OpenRows(Env& env, const std::string& path, Bytes max_row,
                                            const RowColumns& columns) {
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForRead(path));
  std::array<char, kArrowMagic.size()> head = {};
  const auto n = static_cast<size_t>(std::min<int64_t>(file->size().v, head.size()));
  if (n > 0) TEMPER_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(head).first(n))));
  const std::string_view magic(head.data(), n);
  const RowLimits limits = ColumnarRowReader::LimitsFor(max_row);
  std::unique_ptr<ColumnarReader> columnar;
  if (magic.starts_with(kParquetMagic) || magic.starts_with(kEncryptedParquetMagic)) {
    TEMPER_ASSIGN_OR_RETURN(columnar, ParquetReader::Open(std::move(file), limits));
  } else if (magic == kArrowMagic || magic.starts_with(kArrowStreamMagic)) {
    TEMPER_ASSIGN_OR_RETURN(columnar, ArrowReader::Open(std::move(file), limits));
  }
  if (columnar) return std::unique_ptr<RowReader>(std::make_unique<ColumnarRowReader>(std::move(columnar), max_row));
  return TextRowReader::Open(std::move(file), max_row, columns);
}

}  // namespace temper
