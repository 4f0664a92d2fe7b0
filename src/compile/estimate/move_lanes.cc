#include "compile/estimate/move_lanes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace temper {

MoveLanes::MoveLanes(const LinkRates& links) {
  for (size_t lane = kFirstMoveLane; lane < kBackgroundLanes; ++lane) {
    LaneAt(lane).contention = IsDiskLane(lane) ? links.disk : links.copies;
  }
}

void MoveLanes::Issue(size_t lane, Seconds alone) {
  Lane& own = LaneAt(lane);
  own.spans.push_back({.begin = {now_}});
  own.left.push_back(alone.v);
  own.left_in_all += alone.v;
  Pass({0}, /*computing=*/false);  // a move that takes no time is done at once
}

void MoveLanes::Pass(Seconds seconds, bool computing) {
  for (Lane& lane : lanes_) {
    const double slower = computing ? 1 + lane.contention.slowed : 1;
    double at = now_, budget = seconds.v;
    while (lane.done < lane.left.size()) {
      double& left = lane.left[lane.done];
      const double takes = left * slower;
      Span& span = lane.spans[lane.done];
      if (takes > budget) {
        left -= budget / slower;
        lane.left_in_all -= budget / slower;
        break;
      }
      at += takes;
      budget -= takes;
      lane.left_in_all -= left;
      left = 0;
      span.end = {at};
      if (++lane.done < lane.left.size())
        lane.spans[lane.done].begin = std::max(lane.spans[lane.done].begin, Seconds{at});
    }
    if (lane.done == lane.left.size()) lane.left_in_all = 0;  // removes rounding errors
  }
  now_ += seconds.v;
}

Seconds MoveLanes::Compute(Seconds alone) {
  double left = alone.v, taken = 0;
  while (left > 0) {
    double slower = 1,
           until = std::numeric_limits<double>::infinity();  // until the first of the moves that slow kernels ends
    for (const Lane& lane : lanes_) {
      if (lane.done == lane.left.size() || lane.contention.slows <= 0) continue;
      slower += lane.contention.slows;
      until = std::min(until, lane.left_in_all * (1 + lane.contention.slowed));
    }
    // A lane whose remaining time is only a rounding error must not stop progress.
    const double step = std::min(left * slower, std::max(until, 1e-9));
    Pass({step}, /*computing=*/true);
    left = step == left * slower ? 0 : left - step / slower;
    taken += step;
  }
  return {taken};
}

Seconds MoveLanes::Wait(size_t lane, size_t count) {
  const Lane& own = LaneAt(lane);
  TEMPER_CHECK(count <= own.left.size()) << "waits for " << count << " of " << own.left.size() << " moves";
  if (own.done >= count) return {};
  double left = 0;
  for (size_t n = own.done; n < count; ++n) left += own.left[n];
  const Seconds waited{left};
  Pass(waited, /*computing=*/false);
  // Rounding may have left a small rest of the last move.
  Lane& mine = LaneAt(lane);
  for (; mine.done < count; ++mine.done) {
    mine.left_in_all -= mine.left[mine.done];
    mine.left[mine.done] = 0;
    mine.spans[mine.done].end = {now_};
    if (mine.done + 1 < mine.left.size()) mine.spans[mine.done + 1].begin = {now_};
  }
  return waited;
}

Seconds LeastAdded(const MoveSeconds& moves, Seconds idle, const LinkRates& links) {
  struct Share {
    double left;  // beside kernels, without contention
    Contention contention;
    double beside() const { return left * (1 + contention.slowed); }
  };
  // If no kernel runs for `quiet` seconds, each lane uses all of it. Kernels lose least to the rest if moves run at the
  // same time: the sum of their slowdowns counts less than each alone.
  const auto added = [&](double quiet) {
    std::array<Share, MoveLanes::kLanes> shares;
    for (size_t k = 0; k < shares.size(); ++k) {
      shares[k] = {std::max(0.0, moves[k].v - quiet), IsDiskLane(kFirstMoveLane + k) ? links.disk : links.copies};
    }
    std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.beside() > b.beside(); });
    double sum = quiet, slower = 1;
    for (size_t k = 0; k < shares.size(); ++k) {
      slower += shares[k].contention.slows;
      const double until = k + 1 < shares.size() ? shares[k + 1].beside() : 0;
      sum += (shares[k].beside() - until) * (1 - 1 / slower);
    }
    return sum;
  };
  // Linear in `quiet` but where a lane has no rest, or where the rests of two take equally long.
  double least = added(idle.v);
  const auto consider = [&](double quiet) {
    if (quiet > idle.v) least = std::min(least, added(quiet));
  };
  for (size_t k = 0; k < moves.size(); ++k) {
    consider(moves[k].v);
    for (size_t j = 0; j < k; ++j) {
      const bool disk_k = IsDiskLane(kFirstMoveLane + k), disk_j = IsDiskLane(kFirstMoveLane + j);
      if (disk_k == disk_j) continue;  // parallel
      const double a = 1 + (disk_k ? links.disk : links.copies).slowed,
                   b = 1 + (disk_j ? links.disk : links.copies).slowed;
      if (a != b) consider((moves[k].v * a - moves[j].v * b) / (a - b));
    }
  }
  return {least};
}

}  // namespace temper
