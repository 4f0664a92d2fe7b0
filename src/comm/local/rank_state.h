// RankState: what a rank does, as its threads have told and the kernel has counted: whom each waits for, and how much
// the others have worked. Says whose turn it is when somebody waits for the rank: another rank's, if the thread that
// has to come waits itself, else its own code's.
//
// Thread rule: any thread of any rank of the host.
#pragma once

#include <array>
#include <optional>

#include "comm/local/control_block.h"
#include "comm/local/process_activity.h"

namespace temper {

struct RankWaits {
  std::array<int32_t, kNumLanes> on = {};  // per lane: rank + 1 of whom it waits for there; 0: nobody
  uint32_t awaited = 0;                    // RankBlock::awaited

  // The lane whose wait holds up what somebody waits for in `lane`; nullopt: nothing but the rank's own code does.
  std::optional<Lane> HeldUpIn(Lane lane) const;
};
// Of rank `i` of the host; ranks as Sleeper::waiting_for has them.
RankWaits WaitsOf(const ControlBlock& control, int i);

// What a rank has done in threads that do not wait for others. Lanes that wait look after those they wait for, which
// takes time of the processor, and with MPI a lot.
struct OwnActivity {
  ProcessActivity activity;
  uint32_t waiting = 0;  // bits: the lanes that wait, whose threads are left out

  // Whether it has worked since `before`, so many seconds ago, or nothing can be said.
  bool MayHaveWorkedSince(const OwnActivity& before, double seconds) const {
    return !activity.known || !before.activity.known || waiting != before.waiting ||
           activity.WorkedSince(before.activity, seconds);
  }
};
// `processes`: ranks are processes, not threads of this one. Allocates nothing.
OwnActivity OwnActivityOf(const ControlBlock& control, int i, bool processes);

}  // namespace temper
