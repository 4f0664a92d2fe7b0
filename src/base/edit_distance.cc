#include "base/edit_distance.h"

#include "base/check.h"

namespace temper {
namespace {

unsigned char Lower(char c) {
  return static_cast<unsigned char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

}  // namespace

EditDistanceTo::EditDistanceTo(std::string_view b) : size_(b.size()) {
  TEMPER_CHECK(b.size() <= 64) << b;
  for (size_t i = 0; i < b.size(); ++i) places_[Lower(b[i])] |= uint64_t{1} << i;
}

// The bit-vector algorithm of Hyyro (2003). A column of the table of distances between beginnings of `a` and `b` is two
// words: in which rows the distance is one more, and in which one less, than in the row above.
size_t EditDistanceTo::From(std::string_view a) const {
  if (size_ == 0) return a.size();
  const size_t last = size_ - 1;
  size_t distance = size_;
  uint64_t more = ~uint64_t{0}, less = 0, diagonal = 0, equal_before = 0;
  for (const char c : a) {
    const uint64_t equal = places_[Lower(c)];
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

size_t EditDistance(std::string_view a, std::string_view b) {
  return EditDistanceTo(b).From(a);
}

}  // namespace temper
