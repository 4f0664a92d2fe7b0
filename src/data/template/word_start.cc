#include "data/template/word_start.h"

#include <algorithm>

#include "base/text_parts.h"

namespace temper {
namespace {

constexpr size_t kLongestMarker = 64, kLongestWord = 256;  // bytes

bool IsWordByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

}  // namespace

size_t WordStart(std::string_view text, size_t at) {
  // A marker that the text opens ahead of `at` and closes behind it.
  for (size_t i = at; i > 0 && at - i < kLongestMarker; --i) {
    const char c = text[i - 1];
    if (c == '>' || c == ']' || IsBlank({&c, 1})) break;
    if (c != '<' && c != '[') continue;
    const size_t end = text.find_first_of(c == '<' ? "> \t\r\n" : "] \t\r\n", at);
    const bool closed = end != text.npos && end - at < kLongestMarker && text[end] == (c == '<' ? '>' : ']');
    if (closed) return i - 1;
  }
  if (at == text.size() || !IsWordByte(text[at])) return at;
  size_t begin = at;
  while (begin > 0 && at - begin < kLongestWord && IsWordByte(text[begin - 1])) --begin;
  return begin;
}

size_t CommonWords(std::string_view a, std::string_view b) {
  const size_t common = CommonPrefix(a, b);
  return std::min(WordStart(a, common), WordStart(b, common));
}

}  // namespace temper
