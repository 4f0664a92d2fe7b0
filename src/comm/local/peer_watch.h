// PeerWatch: whether a rank of this host that others wait for will still come. A wait continues for a peer that
// computes or reads files, but not for one that is dead, has left, is stopped or does nothing. A peer that is itself
// blocked by another rank (RankState) is judged by that one. It asks the kernel (pidfd, /proc) and never the peer,
// which needs no thread to answer.
//
// Thread rule: the waiting thread. Judge allocates nothing while the answer is OK.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "base/units.h"
#include "comm/local/control_block.h"
#include "comm/local/rank_state.h"

namespace temper {

class PeerWatch {
 public:
  // `processes`: ranks are processes, not threads of this one.
  PeerWatch(const ControlBlock& control, int self, Lane lane, bool processes);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Call it about ten times a second while waiting for `peer`, `waited` so far. An error says why the wait is in vain.
  Status Judge(int peer, Seconds waited);
  // Whether all peers are still there, for a rank that may wait for any of them invisibly: an error says which one has
  // died, or has been stopped for long. Call it several times a second.
  Status LookAround();
  // Whether the process of `peer` has ended without saying that it leaves.
  bool Died(int peer);

 private:
  using Clock = std::chrono::steady_clock;
  Status JudgeActivity(int peer, Clock::time_point now);
  // The ranks and lanes that wait for each other from `peer` on. False: they do not lead back to this wait.
  bool FollowCircle(int peer, FunctionRef<void(int rank, Lane lane)> visit) const;
  // What rank `i` has come for.
  const char* Matter(int i, Lane lane) const {
    return IsMeetingLane(lane) ? ToString(control_.published(i, lane).meeting) : "a transfer between stages";
  }

  const ControlBlock control_;
  const int self_;
  const Lane lane_;
  const bool processes_;
  std::vector<int> pidfds_;  // -1 until the process has joined

  // State of the wait in progress.
  int peer_ = -1;
  OwnActivity mark_;
  Clock::time_point last_look_, mark_time_, next_sample_, circle_since_, died_;
  bool circle_ = false, dead_ = false;

  // For LookAround, per peer: since when it looks dead or stopped; nullopt while it does not.
  std::vector<std::optional<Clock::time_point>> suspect_since_;
};

}  // namespace temper
