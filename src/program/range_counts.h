// RangeCounts: for every byte of an address space, the latest of the counts that its ranges were given.
#pragma once

#include <cstdint>
#include <map>

#include "base/units.h"

namespace temper {

struct AddressRange {
  Bytes begin, end;
};

class RangeCounts {
 public:
  // REQUIRES: `count` is at least every count given before. Costs O(log n) amortized for n ranges.
  void Set(AddressRange range, uint32_t count);
  // The largest count of any byte of `range`; 0 if it has none. Costs O(log n) and the ranges that it overlaps.
  uint32_t LatestIn(AddressRange range) const;

 private:
  struct Piece {
    Bytes end;
    uint32_t count;
  };
  std::map<Bytes, Piece> pieces_;  // by begin; disjoint
};

}  // namespace temper
