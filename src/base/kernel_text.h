// Texts that the kernel writes, in /proc and /sys, and their words and numbers.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"

namespace temper {

// "" if the file cannot be read.
inline std::string ReadKernelText(Env& env, const std::string& path) {
  const Result<std::string> text = env.ReadGenerated(path);
  return text.ok() ? *text : "";
}

inline std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// The number that a text begins with; nullopt for "max" or "unlimited".
inline std::optional<int64_t> NumberIn(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// Whether a list with commas has that word.
inline bool HasWord(std::string_view list, std::string_view word) {
  const auto words = Split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace temper
