// ReadParquetFooter: what the end of a Parquet file says of it: its columns, and where their pages are.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "format/parquet/parquet_schema.h"

namespace temper {

// The first bytes of a Parquet file, and its last.
inline constexpr std::string_view kParquetMagic = "PAR1";
inline constexpr std::string_view kEncryptedParquetMagic = "PARE";  // where the footer is encrypted

// The pages of a column in a row group, one after another in the file.
struct ParquetChunk {
  int64_t begin = 0, end = 0;  // bytes of the file
  int64_t values = 0;          // with nulls
  int64_t codec = 0;           // format/parquet/page_codec.h
};

struct ParquetRowGroup {
  int64_t rows = 0;
  std::vector<ParquetChunk> chunks;  // of each leaf
};

struct ParquetFooter {
  ParquetSchema schema;
  std::vector<ParquetRowGroup> row_groups;
  int64_t rows = 0;
};

// Takes some 3 times the footer's size, which is at most 32 MiB. Errors: the file is cut off, encrypted, or contradicts
// itself: sizes, counts and offsets are compared with each other and with the file, and no two chunks overlap; pages
// are packed in a way that is not read.
Result<ParquetFooter> ReadParquetFooter(const RandomAccessFile& file);

}  // namespace temper
