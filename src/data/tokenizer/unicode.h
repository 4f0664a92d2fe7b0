// Unicode as tokenizers need it: UTF-8, character classes, normalization forms. Linear in the text whatever it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace temper::unicode {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Length of the longest prefix of `text` that is valid UTF-8 (no surrogates, no overlong forms).
size_t ValidPrefix(std::string_view text);
// `text` itself if it is valid, else `storage` filled with it, each maximal ill-formed part replaced by U+FFFD.
std::string_view MakeValid(std::string_view text, std::string& storage);

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

bool IsSpace(char32_t c);  // White_Space
// Each as that part of tokenizers knows it to which it belongs, of whatever version of Unicode (newer_characters.h).
bool IsNumeric(char32_t c);      // Nd, Nl, No
bool IsPunctuation(char32_t c);  // ASCII punctuation and P*
bool IsWord(char32_t c);         // what regular expressions call \w: Alphabetic, M, Nd, Pc, Join_Control
bool IsMark(char32_t c);         // M*: what stripping accents drops

enum class Form { kNfc, kNfd, kNfkc, kNfkd };
// REQUIRES: valid UTF-8.
std::string Normalize(std::string_view text, Form form);
std::string Lowercase(std::string_view text);  // character by character, no context (final sigma stays σ)

}  // namespace temper::unicode
