#include "data/template/word_start.h"

#include <algorithm>

#include "base/text_parts.h"

namespace temper {
namespace {

constexpr size_t kLongestMarker = 64, kLongestWord = 256;  // bytes

// Where the character begins that has byte `at`.
size_t CharacterStart(std::string_view text, size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// Whether words have the character that begins at `at`: letters, digits, _, of alphabets up to U+1FFF. Behind these are
// punctuation, symbols, and scripts that put no spaces between words, of which a word may begin at any character.
bool IsOfWord(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte >= 0x80) return byte >= 0xC3 && byte <= 0xE1;  // 0xC2: U+0080 to U+00BF are symbols, but for three letters
  return byte == '_' || (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z');
}

}  // namespace

size_t WordStart(std::string_view text, size_t at) {
  // A marker that the text opens ahead of `at` and closes behind it.
  for (size_t i = at; i > 0 && at - i < kLongestMarker; --i) {
    const char c = text[i - 1];
    if (c == '>' || c == ']' || IsBlank({&c, 1})) break;
    if (c != '<' && c != '[') continue;
    const std::string_view near = text.substr(at, kLongestMarker);
    const size_t end = near.find_first_of(c == '<' ? "> \t\r\n" : "] \t\r\n");
    const bool closed = end != near.npos && near[end] == (c == '<' ? '>' : ']');
    if (closed) return i - 1;
  }
  if (at == text.size()) return at;
  size_t begin = CharacterStart(text, at);
  if (!IsOfWord(text, begin)) return begin;
  while (begin > 0 && at - begin < kLongestWord) {
    const size_t before = CharacterStart(text, begin - 1);
    if (!IsOfWord(text, before)) break;
    begin = before;
  }
  return begin;
}

size_t CommonWords(std::string_view a, std::string_view b) {
  const size_t common = CommonPrefix(a, b);
  return std::min(WordStart(a, common), WordStart(b, common));
}

}  // namespace temper
