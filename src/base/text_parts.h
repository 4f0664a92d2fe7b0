// Parts of texts, by bytes. White space is what JSON calls so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace temper {

inline bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Without white space at its ends.
inline std::string_view Stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// How many bytes both begin with.
inline size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto n = static_cast<int64_t>(std::min(a.size(), b.size()));
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

}  // namespace temper
