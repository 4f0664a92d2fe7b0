// Quantities as people write them: "80 GB", "3.35 TB/s", "989 TFLOP/s", "4 us", "512 MiB".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace temper {

// The number of `unit`s ("B", "B/s", "FLOP/s", "s") that `text` says: a number, a prefix (n u m k M G T P, and Ki Mi Gi
// Ti of bytes) and the unit. Errors: anything else, or a number that is negative or not finite.
Result<double> ParseQuantity(std::string_view text, std::string_view unit);

// Text that ParseQuantity reads back to that number, to five digits: no measurement has more.
std::string PrintQuantity(double number, std::string_view unit);

// For people: "4.5" below 100, else "64,980".
std::string Grouped(double number);

// "1 row", "3 rows"; `plural`: if it is not the noun with an s.
std::string Counted(int64_t n, std::string_view noun, std::string_view plural = "");

}  // namespace temper
