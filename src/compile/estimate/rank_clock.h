// RankClock: one rank's walk through a Program's schedule, with the seconds of each instruction instead of kernels. It
// goes on until it needs what another stage of the pipeline has not done yet; who runs several together is
// plan/simulation.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "compile/estimate/move_lanes.h"
#include "compile/estimate/step_estimate.h"
#include "program/waits.h"

namespace temper {

// Seconds of an instruction of a segment: the same for all its bindings, whose operands lie in the same tiers.
struct Timed {
  OpSeconds kernel;
  StepRates::Exchange exchange;  // with other ranks
  Seconds move;                  // between tiers
  Cost cost;
  bool background = false;
  int peer = -1;  // of a transfer: the stage at its other end
  bool meets_stages = false;
  Seconds total() const { return kernel.total() + exchange.seconds + move; }
};

// Per segment and instruction.
using TimedSegments = std::vector<std::vector<Timed>>;
TimedSegments TimeOf(const Program& program, const StepRates& rates);

class RankClock {
 public:
  // `program` and `timed` must outlive it. `shared`: StepRates::shared.
  RankClock(const Program& program, const TimedSegments& timed, const LinkRates& links, bool shared, bool keep_events);

  // Goes on. Returns whether it got anywhere.
  bool Advance();
  bool done() const { return call_ == program_.schedule.size(); }

  // The transfer that a lane of transfers (program/waits.h) has to make next, if it has been issued.
  struct Transfer {
    int peer = 0;
    Seconds ready;     // when it was issued and what the lane did before is done
    Seconds duration;  // of a send
  };
  std::optional<Transfer> NextTransfer(size_t lane) const;
  void FinishTransfer(size_t lane, Seconds begin, Seconds end);

  // When it came to a collective that all stages take part in, and waits for them there.
  std::optional<Seconds> arrived() const { return arrived_; }
  // All have come, the last one then.
  void Meet(Seconds all_there) { met_ = all_there; }

  // REQUIRES: done.
  StepEstimate Finish();

 private:
  struct Item {
    const Instruction* instruction;
    const Segment* segment;
    const Timed* timed;
    const Call* call;
    const Binding* binding;
  };
  Item ItemNow() const;
  bool Run(const Item& item);
  void Count(const Item& item, Seconds duration);
  // In the order of issue.
  void Record(const Item& item, const char* queue, Seconds begin, Seconds duration);
  void WaitUntil(Seconds time, Seconds* term);
  // For the first `count` of a lane.
  void Await(size_t lane, uint32_t count);
  // Whether that many of a lane have a time.
  bool HasTimes(size_t lane, uint32_t count) const;
  Seconds* TermOf(size_t lane);  // what waiting for a lane counts as

  const Program& program_;
  const TimedSegments& timed_;
  const bool shared_, keep_events_;
  const std::vector<LaneCounts> waits_;
  size_t call_ = 0, instruction_ = 0, at_ = 0;  // of the schedule, of its binding, over all

  Seconds now_;                                            // of the compute queue
  std::array<Seconds, kFirstMoveLane> free_;               // when the lane has done what it has done so far
  std::array<std::vector<Seconds>, kFirstMoveLane> done_;  // per item of the lane that has a time: when it ends
  MoveLanes moves_;                                        // of the other lanes
  struct Issued {
    Item item;
    Seconds time;
    size_t event;  // where events are kept: its own, which has no time yet
  };
  // Transfers, of which the first done_.size() are made, and moves.
  std::array<std::vector<Issued>, kBackgroundLanes> issued_;
  std::optional<Seconds> arrived_, met_;
  std::map<std::pair<Op, Phase>, OpTotal> totals_;
  StepEstimate result_;
};

// Of a stage of a pipeline: as if the others were always in time (all together: plan/simulation.h).
StepEstimate EstimateStep(const Program& program, const StepRates& rates, bool keep_events = false);

}  // namespace temper
