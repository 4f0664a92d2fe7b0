// How far a mistyped name is from a known one.
#pragma once

#include <cstddef>
#include <string_view>

namespace temper {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`; capitals count as small letters.
// Takes time in proportion to a.size() only. REQUIRES: b has at most 64 characters.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace temper
