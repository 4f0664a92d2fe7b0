#include "format/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace temper {
namespace {

constexpr std::array<bool, 256> kEscaped = [] {
  std::array<bool, 256> escaped = {};
  for (size_t c = 0; c < 0x20; ++c) escaped[c] = true;
  escaped['"'] = escaped['\\'] = true;
  return escaped;
}();

template <class T>
void AppendNumber(T value, std::string& out) {
  char text[32];  // the longest double has 24 characters
  out.append(text, static_cast<size_t>(std::to_chars(text, text + sizeof text, value).ptr - text));
}

}  // namespace

void AppendJsonString(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (auto begin = text.begin();;) {  // of what is not written yet
    const auto end = std::find_if(begin, text.end(), [](char c) { return kEscaped[static_cast<unsigned char>(c)]; });
    out.append(begin, end);
    if (end == text.end()) break;
    begin = end + 1;
    const char c = *end;
    out += '\\';
    if (c == '"' || c == '\\') {
      out += c;
    } else if (c == '\n') {
      out += 'n';
    } else {
      out += "u00";
      out += kHex[static_cast<size_t>(c >> 4)];
      out += kHex[static_cast<size_t>(c & 15)];
    }
  }
  out += '"';
}

void AppendJsonInt(int64_t value, std::string& out) {
  AppendNumber(value, out);
}

void AppendJsonUnsigned(uint64_t value, std::string& out) {
  AppendNumber(value, out);
}

void AppendJsonDouble(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const size_t begin = out.size();
  AppendNumber(value, out);
  if (out.find_first_of(".e", begin) == out.npos) out += ".0";
}

}  // namespace temper
