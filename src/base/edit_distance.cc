#include "base/edit_distance.h"

#include <array>
#include <cstdint>

#include "base/check.h"

namespace temper {
namespace {

unsigned char Lower(char c) {
  return static_cast<unsigned char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

}  // namespace

// The bit-vector algorithm of Hyyro (2003). A column of the table of distances between beginnings of `a` and `b` is two
// words: in which rows the distance is one more, and in which one less, than in the row above.
size_t EditDistance(std::string_view a, std::string_view b) {
  TEMPER_CHECK(b.size() <= 64) << b;
  if (b.empty()) return a.size();
  std::array<uint64_t, 256> places = {};  // of each character in b
  for (size_t i = 0; i < b.size(); ++i) places[Lower(b[i])] |= uint64_t{1} << i;
  const size_t last = b.size() - 1;
  size_t distance = b.size();
  uint64_t more = ~uint64_t{0}, less = 0, diagonal = 0, equal_before = 0;
  for (const char c : a) {
    const uint64_t equal = places[Lower(c)];
    const uint64_t swapped = (~diagonal & equal) << 1 & equal_before;
    diagonal =
        (((equal & more) + more) ^ more) | equal | less | swapped;  // rows whose distance is that of the diagonal
    uint64_t right_more = less | ~(diagonal | more), right_less = diagonal & more;  // than in the column before
    distance += (right_more >> last & 1) - (right_less >> last & 1);
    right_more = right_more << 1 | 1;
    right_less <<= 1;
    more = right_less | ~(diagonal | right_more);
    less = right_more & diagonal;
    equal_before = equal;
  }
  return distance;
}

}  // namespace temper
