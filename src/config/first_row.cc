#include "config/first_row.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "format/data_file_pattern.h"
#include "format/json.h"

namespace temper {
namespace {

constexpr int64_t kMostRead = 256 * 1024;

// From the first '{' to its '}'; empty if the text ends before.
std::string_view FirstObject(std::string_view text) {
  const size_t begin = std::min(text.find('{'), text.size());
  int depth = 0;
  bool quoted = false;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '}') {
      depth += c == '{' ? 1 : -1;
      if (depth == 0) return text.substr(begin, i + 1 - begin);
    }
  }
  return {};
}

}  // namespace

std::optional<std::set<std::string>> FieldsOfFirstRow(Env& env, const std::string& path) {
  const auto files = DataFilesOf(env, path, "data");
  if (!files.ok() || !env.IsFile(files->front())) return std::nullopt;
  const auto file = env.OpenForRead(files->front());
  if (!file.ok()) return std::nullopt;
  std::string text(static_cast<size_t>(std::min((*file)->size().v, kMostRead)), ' ');
  if (!(*file)->ReadAt(0, std::as_writable_bytes(std::span(text))).ok()) return std::nullopt;
  const auto row = ParseOrderedJson(FirstObject(text), path);
  if (!row.ok() || !row->is_object()) return std::nullopt;
  std::set<std::string> fields;
  for (const auto& [field, value] : row->items()) fields.insert(field);
  return fields;
}

}  // namespace temper
