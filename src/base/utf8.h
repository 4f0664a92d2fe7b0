// UTF-8: whether a text is valid, where its characters begin
// and end. Pure functions; any thread. Linear in any text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace temper::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the character at text[i], 0 where it is ill-formed. REQUIRES: i < text.size().
size_t LengthAt(std::string_view text, size_t i);
// Length of the longest prefix of `text` that is valid UTF-8 (no surrogates, no overlong forms).
size_t ValidPrefix(std::string_view text);
inline bool IsValid(std::string_view text) {
  return ValidPrefix(text) == text.size();
}
bool IsAscii(std::string_view text);
// `text` itself if it is valid, else `storage` filled with it, each maximal ill-formed part replaced by U+FFFD.
std::string_view MakeValid(std::string_view text, std::string& storage);

// `text` made safe for a terminal: control characters (except line ends and tabs) and ill-formed bytes as \xNN.
std::string Harmless(std::string_view text);

// Bytes of the character that starts with `lead`. REQUIRES: `lead` starts a character of valid UTF-8.
inline size_t Length(char lead) {
  const auto b = static_cast<unsigned char>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}
// The code point at text[i]. REQUIRES: valid UTF-8, i at the start of a character.
char32_t At(std::string_view text, size_t i);
// The start of the last character. REQUIRES: valid UTF-8, not empty.
size_t LastStart(std::string_view text);
void Append(std::string& out, char32_t c);

}  // namespace temper::utf8
