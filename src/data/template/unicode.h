// Text with the semantics of Python's str: stored as UTF-8, indexed by code points,
// with the properties and case mappings of the Unicode Character Database. Pure
// functions; any thread. Bytes that are not UTF-8 are never read out of bounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temper::jinja {

// The code point at byte `position`, which moves past it. REQUIRES: position
// < text.size(). A broken sequence gives U+FFFD and moves by one byte.
char32_t NextCodePoint(std::string_view text, size_t& position);
std::u32string ToCodePoints(std::string_view text);

int64_t CountCodePoints(std::string_view text);
// Byte offset of code point `index`, or text.size() if there are fewer. O(n).
size_t ByteOffset(std::string_view text, int64_t index);

bool IsSpace(char32_t c);
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsAlnum(char32_t c);
bool IsPrintable(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string TitleCase(std::string_view text);  // str.title, not Jinja's filter

// Removes the code points of `chars` (null: white space) at the chosen ends.
std::string_view Strip(std::string_view text, const std::string_view* chars, bool left, bool right);

}  // namespace temper::jinja
