// Rows of a table that an attribute lists, in their order: "5,7-9" are rows 5, 7, 8 and 9.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

// Where rows follow each other upwards they become a range.
std::string PrintRowList(std::span<const int64_t> rows);
// Errors: kCorrupt for another form, a row that is listed twice, no row, or more than a million.
Result<std::vector<int64_t>> ParseRowList(std::string_view text);

}  // namespace temper
