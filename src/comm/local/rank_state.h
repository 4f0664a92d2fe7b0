// RankState: what a rank does, as its threads say and the kernel counts: for which rank each thread waits, and how much
// the others have worked. It tells which rank is blocking when another waits for this one: a further rank, if the
// thread that has to act waits itself, otherwise this rank's own code.
//
// Thread rule: any thread of any rank of the host.
#pragma once

#include <array>
#include <optional>

#include "comm/local/control_block.h"
#include "comm/local/process_activity.h"

namespace temper {

struct RankWaits {
  std::array<int32_t, kNumLanes> on = {};  // per lane: rank + 1 that it waits for there; 0: none
  uint32_t awaited = 0;                    // RankBlock::awaited

  // The lane whose wait blocks a wait for this rank in `lane`; nullopt: only the rank's own code does.
  std::optional<Lane> HeldUpIn(Lane lane) const;
};
// Of rank `i` of the host; ranks numbered as in Sleeper::waiting_for.
RankWaits WaitsOf(const ControlBlock& control, int i);

// What a rank has done in threads that do not wait for others. Lanes that wait check on the ranks they wait for, which
// takes processor time, and with MPI a lot.
struct OwnActivity {
  ProcessActivity activity;
  uint32_t waiting = 0;  // bits: the lanes that wait, whose threads are not counted

  // Whether it has worked since `before`, this many seconds ago, or cannot be judged.
  bool MayHaveWorkedSince(const OwnActivity& before, double seconds) const {
    return !activity.known || !before.activity.known || waiting != before.waiting ||
           activity.WorkedSince(before.activity, seconds);
  }
};
// `processes`: ranks are processes, not threads of this one. Allocates nothing.
OwnActivity OwnActivityOf(const ControlBlock& control, int i, bool processes);

}  // namespace temper
