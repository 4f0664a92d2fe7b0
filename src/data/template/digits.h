// Reads the digits of numbers in format strings and prints those of formatted numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temper::jinja {

// More digits after the point than any use needs; a double has at most 1074.
constexpr int64_t kMaxPrecision = 2000;

// A width, precision or index in a format string. Moves `at` past the digits; -1 if there are none.
int64_t ReadNumber(std::string_view text, size_t& at);

// The magnitude of v without a sign, in one of C's float formats
// (e E f F g G); or in base 16 (x X), 8 (o), 2 (b) or 10.
std::string FloatDigits(double v, char type, int64_t precision, bool alternate);
std::string IntegerDigits(int64_t v, char type);

}  // namespace temper::jinja
