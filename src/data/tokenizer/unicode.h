// Unicode as tokenizers need it: character classes, normalization forms. Linear in the text whatever it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace temper::unicode {

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
