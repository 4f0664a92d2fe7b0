// HasWeights: a look ahead of tokenising, which the Programs of a run are compiled by.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/env.h"

namespace temper {

// Whether some row of `path`, or some message of a row, has a weight other than 0 and 1. The bytes are searched as
// they are; rows are cut out and parsed only where some byte may name such a weight, up to the first row that has one.
// False of what cannot be read: reading it as records says what is wrong.
bool HasWeights(Env& env, const std::string& path);

// Where in JSON text a weight other than 0 and 1 may stand. No row of a text in which none is found has one; of one
// that is found, only parsing tells.
struct WeightMention {
  size_t at = std::string_view::npos;  // in the text; npos: nowhere
  bool cut_off = false;                // the text ends before it is clear: look again from `at`, with more of it
};
// `at_end`: nothing follows the text.
WeightMention FindWeight(std::string_view text, bool at_end);

}  // namespace temper
