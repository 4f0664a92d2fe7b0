#include "config/foreign_setting.h"

#include <fmt/core.h>

#include <algorithm>

namespace temper {

std::string ForeignSetting::Text() const {
  if (value.is_string()) return value.get<std::string>();
  return DumpJson(value);
}

std::string ForeignSetting::Place() const {
  return file.empty() ? fmt::format("line {}", line) : fmt::format("{} line {}", file, line);
}

std::string ForeignSetting::Shown() const {
  constexpr size_t kLongest = 60;
  std::string text = Text();
  if (text.size() > kLongest) text.replace(kLongest, text.npos, "...");
  return fmt::format("{}, {}: {}", Place(), name, OneLine(text));
}

std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

}  // namespace temper
