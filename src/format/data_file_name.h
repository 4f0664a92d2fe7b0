// What the name of a data file says of its content: by its ending, in any case, behind which .gz, .zst or .zstd may
// stand.
#pragma once

#include <cstdint>
#include <string_view>

namespace temper {

enum class DataFileKind : uint8_t { kOther, kJson, kJsonLines, kCommaTable, kTabTable, kText, kParquet, kArrow };

// `path` without the ending of a compressed file.
std::string_view WithoutCompression(std::string_view path);
DataFileKind KindOfDataFile(std::string_view path);
// Whether such a file has rows: JSON, a table, or columns.
bool HasRows(DataFileKind kind);

}  // namespace temper
