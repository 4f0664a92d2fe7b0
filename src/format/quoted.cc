#include "format/quoted.h"

#include <fmt/core.h>

#include <algorithm>

namespace temper {

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 120;  // longer than any real tensor name (about 80), shorter than two terminal lines
  std::string out = "'";
  for (char c : text.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7F) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  out += text.size() > kShown ? "...'" : "'";
  return out;
}

std::string ShellWord(std::string_view text) {
  const auto plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./+=:@%,").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace temper
