#include "graph/row_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace temper {
namespace {

constexpr int64_t kMostRows = 1 << 20;

// Takes a number off the text's front.
bool TakeNumber(std::string_view* text, int64_t* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || *number < 0) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

}  // namespace

std::string PrintRowList(std::span<const int64_t> rows) {
  std::string text;
  for (size_t i = 0; i < rows.size();) {
    size_t last = i;
    while (last + 1 < rows.size() && rows[last + 1] == rows[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", rows[i]) : fmt::format("{}-{}", rows[i], rows[last]);
    i = last + 1;
  }
  return text;
}

Result<std::vector<int64_t>> ParseRowList(std::string_view text) {
  const auto bad = [] { return Corrupt("a list of rows should be like 5,7-9"); };
  std::vector<int64_t> rows;
  while (true) {
    int64_t first = 0, last = 0;
    if (!TakeNumber(&text, &first)) return bad();
    last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!TakeNumber(&text, &last) || last < first) return bad();
    }
    if (last - first >= kMostRows - std::ssize(rows)) {
      return Corrupt(fmt::format("a list of rows has at most {}", kMostRows));
    }
    for (int64_t row = first; row <= last; ++row) rows.push_back(row);
    if (text.empty()) break;
    if (!text.starts_with(',')) return bad();
    text.remove_prefix(1);
  }
  std::vector<int64_t> sorted = rows;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return Corrupt(fmt::format("a list of rows has row {} twice", *twice));
  return rows;
}

}  // namespace temper
