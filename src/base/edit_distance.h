// How far a mistyped name is from a known one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace temper {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`; capitals count as small letters.
// Takes time in proportion to a.size() only. REQUIRES: b has at most 64 characters.
size_t EditDistance(std::string_view a, std::string_view b);

// The same, for one `b` and many `a`.
class EditDistanceTo {
 public:
  explicit EditDistanceTo(std::string_view b);
  size_t From(std::string_view a) const;

 private:
  const size_t size_;
  std::array<uint64_t, 256> places_ = {};  // of each character, a bit per place
};

}  // namespace temper
