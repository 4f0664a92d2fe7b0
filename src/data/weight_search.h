// HasWeights: whether data has weights, which must be known before tokenising to compile the Programs of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "base/env.h"
#include "format/row_reading.h"

namespace temper {

// Whether one of the first `max_rows` rows of `path`, or a message of such a row, has a weight other than 0 and 1.
// Searches the raw bytes; rows are parsed only if some key looks like such a weight, up to the first row that has one.
// False for a file that cannot be read: reading its records will report the error. With columns a weight may have any
// name: then rows are parsed at once. `progress`: called with the bytes searched and all.
bool HasWeights(Env& env, const std::string& path, int64_t max_rows = std::numeric_limits<int64_t>::max(),
                const RowReading& reading = {}, const std::function<void(Bytes, Bytes)>& progress = nullptr);

// A place in JSON text that may be a weight other than 0 and 1. If none is found, no row of the text has one; if one is
// found, only parsing can confirm it.
struct WeightMention {
  size_t at = std::string_view::npos;  // in the text; npos: nowhere
  bool cut_off = false;                // the text ends before this is clear: search again from `at`, with more text
};
// `at_end`: nothing follows the text.
WeightMention FindWeight(std::string_view text, bool at_end);

}  // namespace temper
