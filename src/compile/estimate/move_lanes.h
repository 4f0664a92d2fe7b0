// MoveLanes: how far the moves are that a walk through a Program has issued. Each lane does its moves one after the
// other, beside kernels and beside the other lanes. Where a processor's cores copy what moves (LinkRates::copies,
// disk), kernels and moves slow each other down as long as both run.
#pragma once

#include <array>
#include <vector>

#include "compile/residency/residency.h"
#include "program/waits.h"

namespace temper {

class MoveLanes {
 public:
  explicit MoveLanes(const LinkRates& links);

  // Of a move, when it ran; both 0 until it is done.
  struct Span {
    Seconds begin, end;
  };

  // `alone`: what the move takes with nothing beside it.
  void Issue(size_t lane, Seconds alone);
  size_t issued(size_t lane) const { return LaneAt(lane).spans.size(); }

  // Kernels run that take `alone` with nothing beside them; returns what they take beside the moves that are under way.
  Seconds Compute(Seconds alone);
  // No kernel runs for so long.
  void Idle(Seconds seconds) { Pass(seconds, /*computing=*/false); }
  // No kernel runs until the first `count` of a lane are done; returns for how long. REQUIRES: count <= issued(lane).
  Seconds Wait(size_t lane, size_t count);

  // REQUIRES: n < issued(lane).
  const Span& SpanOf(size_t lane, size_t n) const { return LaneAt(lane).spans[n]; }

 private:
  static constexpr size_t kLanes = kBackgroundLanes - kFirstMoveLane;
  struct Lane {
    Contention contention;
    std::vector<Span> spans;
    std::vector<double> left;  // seconds alone that each has yet to run
    size_t done = 0;           // so many, from the first on
    double left_in_all = 0;
  };
  Lane& LaneAt(size_t lane) { return lanes_[lane - kFirstMoveLane]; }
  const Lane& LaneAt(size_t lane) const { return lanes_[lane - kFirstMoveLane]; }
  void Pass(Seconds seconds, bool computing);

  std::array<Lane, kLanes> lanes_;
  double now_ = 0;
};

}  // namespace temper
