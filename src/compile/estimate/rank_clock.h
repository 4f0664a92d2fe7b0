// RankClock: simulates one rank's walk through a Program's schedule, with the estimated seconds of each instruction
// instead of kernels. It advances until it needs something that another pipeline stage has not done yet;
// plan/simulation runs several clocks together.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "compile/estimate/move_lanes.h"
#include "compile/estimate/step_estimate.h"
#include "program/waits.h"

namespace temper {

// Seconds of an instruction of a segment. All bindings of a
// segment take the same: their operands are in the same tiers.
struct Timed {
  OpSeconds kernel;
  StepRates::Exchange exchange;  // with other ranks
  Seconds move;                  // between tiers
  Cost cost;
  bool background = false;
  int peer = -1;  // for transfers: the stage at the other end
  bool meets_stages = false;
  Seconds total() const { return kernel.total() + exchange.seconds + move; }
};

// Per segment and instruction.
using TimedSegments = std::vector<std::vector<Timed>>;
TimedSegments TimeOf(const Program& program, const StepRates& rates);

class RankClock {
 public:
  // `program`, `schedule`, of its bindings, and `timed` must outlive it. `shared`: StepRates::shared.
  RankClock(const Program& program, std::span<const Call> schedule, const TimedSegments& timed, const LinkRates& links,
            bool shared, bool keep_events);

  // Advances as far as possible. Returns whether it made progress.
  bool Advance();
  bool done() const { return call_ == schedule_.size(); }

  // The next transfer of a transfer lane (program/waits.h), if it has been issued.
  struct Transfer {
    int peer = 0;
    Seconds ready;     // when it has been issued and the lane's earlier transfers are done
    Seconds duration;  // of a send
  };
  std::optional<Transfer> NextTransfer(size_t lane) const;
  void FinishTransfer(size_t lane, Seconds begin, Seconds end);

  // The time at which it reached a collective of all stages, where it waits for them.
  std::optional<Seconds> arrived() const { return arrived_; }
  // All stages have arrived, the last one at `all_there`.
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
  // Appends an event; events are in order of issue.
  void Record(const Item& item, const char* queue, Seconds begin, Seconds duration);
  void WaitUntil(Seconds time, Seconds* term);
  // Waits for the first `count` items of a lane.
  void Await(size_t lane, uint32_t count);
  // Whether the first `count` items of a lane have an end time.
  bool HasTimes(size_t lane, uint32_t count) const;
  Seconds* TermOf(size_t lane);  // the term that a wait for the lane counts toward

  const Program& program_;
  const std::span<const Call> schedule_;
  const TimedSegments& timed_;
  const bool shared_, keep_events_;
  const std::vector<LaneCounts> waits_;
  size_t call_ = 0, instruction_ = 0, at_ = 0;  // indices: in the schedule, in the binding, overall

  Seconds now_;                                            // of the compute queue
  std::array<Seconds, kFirstMoveLane> free_;               // when the lane is free for its next item
  std::array<std::vector<Seconds>, kFirstMoveLane> done_;  // per finished item of the lane: its end time
  MoveLanes moves_;                                        // the move lanes
  struct Issued {
    Item item;
    Seconds time;
    size_t event;  // if events are kept: index of its event, which has no time yet
  };
  // Transfers, of which the first done_.size() are finished, and moves.
  std::array<std::vector<Issued>, kBackgroundLanes> issued_;
  std::optional<Seconds> arrived_, met_;
  std::map<std::pair<Op, Phase>, OpTotal> totals_;
  StepEstimate result_;
};

// For a stage of a pipeline, assumes that it never waits for other stages (for all together, see plan/simulation.h).
StepEstimate EstimateStep(const Program& program, const StepRates& rates, bool keep_events = false);

}  // namespace temper
