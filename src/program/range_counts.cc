#include "program/range_counts.h"

#include <algorithm>
#include <iterator>

namespace temper {

void RangeCounts::Set(AddressRange range, uint32_t count) {
  if (range.begin >= range.end) return;
  auto next = pieces_.lower_bound(range.begin);
  // Most ranges come again: a step's micro-batches move the same values.
  if (next != pieces_.end() && next->first == range.begin && next->second.end == range.end) {
    next->second.count = count;
    return;
  }
  if (next != pieces_.begin()) {
    const auto before = std::prev(next);
    const Piece piece = before->second;
    if (piece.end > range.begin) before->second.end = range.begin;
    if (piece.end > range.end) pieces_.emplace_hint(next, range.end, piece);
  }
  while (next != pieces_.end() && next->first < range.end) {
    if (next->second.end > range.end) pieces_.emplace_hint(std::next(next), range.end, next->second);
    next = pieces_.erase(next);
  }
  pieces_.emplace_hint(next, range.begin, Piece{range.end, count});
}

uint32_t RangeCounts::LatestIn(AddressRange range) const {
  // Most lookups are in another tier than all ranges.
  if (range.begin >= range.end || pieces_.empty() || range.end <= pieces_.begin()->first) return 0;
  if (pieces_.rbegin()->second.end <= range.begin) return 0;
  auto piece = pieces_.lower_bound(range.begin);
  uint32_t latest = 0;
  if (piece != pieces_.begin()) {
    const auto before = std::prev(piece);
    if (before->second.end > range.begin) latest = before->second.count;
  }
  for (; piece != pieces_.end() && piece->first < range.end; ++piece) latest = std::max(latest, piece->second.count);
  return latest;
}

}  // namespace temper
