// AppendParquetValue: a value of a Parquet column as JSON (format/parquet/parquet_reader.h says how). Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "format/parquet/parquet_schema.h"

namespace temper {

// By how `type` is stored: booleans and integers, float and double, all others. `text` of a column that is said to be
// text must be UTF-8.
void AppendParquetInt(const ParquetType& type, int64_t value, std::string& out);
void AppendParquetNumber(const ParquetType& type, double value, std::string& out);
void AppendParquetBytes(const ParquetType& type, std::string_view bytes, std::string& out);

}  // namespace temper
