#include "compile/step_estimate.h"

#include <algorithm>

#include "compile/rank_clock.h"

namespace temper {

const char* StepEstimate::Bottleneck() const {
  const std::pair<Seconds, const char*> terms[] = {{arithmetic, "arithmetic"},
                                                   {memory, "memory bandwidth"},
                                                   {launches, "launching kernels"},
                                                   {collectives + waiting, "communication"},
                                                   {moves + stalled, "moves between memory tiers"},
                                                   {stages, "waiting for other stages"}};
  return std::max_element(std::begin(terms), std::end(terms))->second;
}

StepEstimate EstimateStep(const Program& program, const StepRates& rates, bool keep_events) {
  const TimedSegments timed = TimeOf(program, rates);
  RankClock clock(program, timed, rates.links, rates.shared, keep_events);
  for (bool moved = true; moved;) {
    moved = clock.Advance();
    for (const size_t lane : {kSendLane, kReceiveLane}) {
      while (const auto transfer = clock.NextTransfer(lane)) {
        clock.FinishTransfer(lane, transfer->ready, transfer->ready + transfer->duration);
        moved = true;
      }
    }
    if (!clock.arrived()) continue;
    clock.Meet(*clock.arrived());
    moved = true;
  }
  return clock.Finish();
}

}  // namespace temper
