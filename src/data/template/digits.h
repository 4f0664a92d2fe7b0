// The digits of numbers, in format texts and in what these make.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temper::jinja {

// Digits after the point that anybody can want; a double has at most 1074 of them.
constexpr int64_t kMaxPrecision = 2000;

// A width, precision or index in a format text. Moves `at` behind the digits; -1 where there are none.
int64_t ReadNumber(std::string_view text, size_t& at);

// The magnitude of v without a sign: in one of C's float formats, e E f F g G; in base 16 (x X), 8 (o), 2 (b) or 10.
std::string FloatDigits(double v, char type, int64_t precision, bool alternate);
std::string IntegerDigits(int64_t v, char type);

}  // namespace temper::jinja
