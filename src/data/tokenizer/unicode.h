// Unicode for tokenizers: character classes, normalization forms. Linear in the text for any content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace temper::unicode {

bool IsSpace(char32_t c);  // White_Space
// Each follows the version of Unicode of the part of the tokenizers library that uses it (newer_characters.h).
bool IsNumeric(char32_t c);         // Nd, Nl, No
bool IsPunctuation(char32_t c);     // ASCII punctuation and P*
bool IsWord(char32_t c);            // \w of regular expressions: Alphabetic, M, Nd, Pc, Join_Control
bool IsMark(char32_t c);            // M*: dropped by stripping accents
bool IsNonspacingMark(char32_t c);  // Mn: dropped by BERT's normalizer, as are
bool IsOther(char32_t c);           // Cc, Cf and Co
// The end of the extended grapheme cluster, what readers see as one character, that begins at `begin`. REQUIRES: valid
// UTF-8, begin < text.size().
size_t GraphemeEnd(std::string_view text, size_t begin);
// Letters that normal forms may join with the character before: of Hangul, and to be safe all beyond 16 bits. (Marks
// may be joined, too.)
inline bool MayJoinBefore(char32_t c) {
  return (c >= 0x1100 && c <= 0x11FF) || (c >= 0xA960 && c <= 0xA97F) || (c >= 0xD7B0 && c <= 0xD7FF) || c >= 0x10000;
}

enum class Form { kNfc, kNfd, kNfkc, kNfkd };
// REQUIRES: valid UTF-8.
std::string Normalize(std::string_view text, Form form);
std::string Lowercase(std::string_view text);  // character by character, no context (final sigma stays σ)

}  // namespace temper::unicode
