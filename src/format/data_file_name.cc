#include "format/data_file_name.h"

#include <algorithm>
#include <utility>

namespace temper {
namespace {

constexpr std::pair<std::string_view, DataFileKind> kEndings[] = {
    {".json", DataFileKind::kJson},      {".jsonl", DataFileKind::kJsonLines}, {".ndjson", DataFileKind::kJsonLines},
    {".csv", DataFileKind::kCommaTable}, {".tsv", DataFileKind::kTabTable},    {".txt", DataFileKind::kText},
    {".text", DataFileKind::kText},      {".md", DataFileKind::kText},         {".parquet", DataFileKind::kParquet},
    {".arrow", DataFileKind::kArrow},
};

bool EndsWith(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() && std::equal(lower.rbegin(), lower.rend(), text.rbegin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? b + 32 : b);
         });
}

}  // namespace

std::string_view WithoutCompression(std::string_view path) {
  for (const std::string_view ending : {".gz", ".zst", ".zstd"}) {
    if (EndsWith(path, ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

DataFileKind KindOfDataFile(std::string_view path) {
  path = WithoutCompression(path);
  for (const auto& [ending, kind] : kEndings) {
    if (EndsWith(path, ending)) return kind;
  }
  return DataFileKind::kOther;
}

bool HasRows(DataFileKind kind) {
  return kind == DataFileKind::kJson || kind == DataFileKind::kJsonLines || kind == DataFileKind::kCommaTable ||
         kind == DataFileKind::kTabTable || kind == DataFileKind::kParquet || kind == DataFileKind::kArrow;
}

}  // namespace temper
