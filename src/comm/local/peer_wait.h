// PeerWait: how a rank waits for another one of its host. It spins for some microseconds, then sleeps on a futex: there
// may be more ranks than processors. Every wait ends: with the run's cause if it was stopped, or with a cause of its
// own if the peer will not come (PeerWatch), which then stops the run for all.
//
// Thread rule: one thread at a time per lane. Allocates nothing but error messages.
#pragma once

#include <chrono>

#include "base/function_ref.h"
#include "comm/local/control_block.h"
#include "comm/local/peer_watch.h"

namespace temper {

class PeerWait {
 public:
  PeerWait(const ControlBlock& control, int self, Lane lane, bool processes);

  // Until `reached`, which `peer` makes true before it rings the lane's doorbell.
  Status Until(int peer, FunctionRef<bool()> reached);

  // Ends the run for all ranks, and returns what ended it: `cause`, unless another cause was first.
  Status Stop(const Status& cause);
  // OK while the run continues.
  Status Check() const { return control_.stopped() ? control_.Cause() : OkStatus(); }

 private:
  Status Sleep(int peer, FunctionRef<bool()> reached);

  const ControlBlock control_;
  const int self_;
  const Lane lane_;
  PeerWatch watch_;
  std::chrono::microseconds spin_{0};  // 0: not known yet
};

}  // namespace temper
