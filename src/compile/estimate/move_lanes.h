// MoveLanes: the progress of moves that a walk through a Program has issued. Each lane runs its moves one after the
// other, concurrently with kernels and with the other lanes. If a processor's cores do the copying (LinkRates::copies,
// disk), kernels and moves slow each other down while both run.
#pragma once

#include <array>
#include <vector>

#include "compile/residency/residency.h"
#include "program/waits.h"

namespace temper {

class MoveLanes {
 public:
  explicit MoveLanes(const LinkRates& links);

  // When a move ran; both 0 until it is done.
  struct Span {
    Seconds begin, end;
  };

  // `alone`: the duration of the move without contention.
  void Issue(size_t lane, Seconds alone);
  size_t issued(size_t lane) const { return LaneAt(lane).spans.size(); }

  // Runs kernels that take `alone` without contention; returns their duration beside the moves in progress.
  Seconds Compute(Seconds alone);
  // Passes time in which no kernel runs.
  void Idle(Seconds seconds) { Pass(seconds, /*computing=*/false); }
  // Waits, without running kernels, until the first `count` moves of a lane are done; returns the time waited.
  // REQUIRES: count <= issued(lane).
  Seconds Wait(size_t lane, size_t count);

  // REQUIRES: n < issued(lane).
  const Span& SpanOf(size_t lane, size_t n) const { return LaneAt(lane).spans[n]; }

  static constexpr size_t kLanes = kBackgroundLanes - kFirstMoveLane;

 private:
  struct Lane {
    Contention contention;
    std::vector<Span> spans;
    std::vector<double> left;  // per move: remaining seconds without contention
    size_t done = 0;           // the first `done` moves are done
    double left_in_all = 0;
  };
  Lane& LaneAt(size_t lane) { return lanes_[lane - kFirstMoveLane]; }
  const Lane& LaneAt(size_t lane) const { return lanes_[lane - kFirstMoveLane]; }
  void Pass(Seconds seconds, bool computing);

  std::array<Lane, kLanes> lanes_;
  double now_ = 0;
};

// Per lane of moves: the sum of their durations without contention.
using MoveSeconds = std::array<Seconds, MoveLanes::kLanes>;

// The least by which the moves and `idle` lengthen a step in any order of moves and kernels. `idle`: seconds of the
// step in which no kernel runs, but moves may.
Seconds LeastAdded(const MoveSeconds& moves, Seconds idle, const LinkRates& links);

}  // namespace temper
