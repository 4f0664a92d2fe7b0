// Rendezvous: how a rank meets others of its host. A meeting has three parts:
//   Publish  writes what peers shall see of this rank, once no peer reads what it showed before
//   Arrive   says so, and waits until all members of the group have: what they publish may be read
//   Depart   says that this rank has read what it wanted, and waits until all have read from it; or
//   Leave    says so and goes on: the next Publish waits
// Arrive again between them is a barrier. Each rank of a pair counts the other's signals, so groups may overlap in any
// way as long as any two ranks meet in the same order.
//
// One Rendezvous per lane of meetings: they are independent.
//
// Every wait ends: with the run's cause if it was stopped, or with a cause of its own if a peer will not come
// (PeerWait), which then stops the run for all. Thread rule: one thread at a time. Allocates nothing but error
// messages.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/local/control_block.h"
#include "comm/local/peer_wait.h"

namespace temper {

// Ranks of one host in the order of a mesh's group; `index` is this rank's place.
struct HostGroup {
  std::vector<int> members;
  int index = 0;
  int size() const { return static_cast<int>(members.size()); }
};

class Rendezvous {
 public:
  // REQUIRES: IsMeetingLane(lane).
  Rendezvous(const ControlBlock& control, int self, Lane lane, bool processes);

  Status Publish(Meeting meeting, uint64_t fingerprint);
  // Errors: a member has come for something else.
  Status Arrive(const HostGroup& group);
  Status Depart(const HostGroup& group);
  void Leave(const HostGroup& group);

  // Ends the run for all ranks, and returns what ended it: `cause`, unless another cause was first.
  Status Stop(const Status& cause) { return wait_.Stop(cause); }
  // OK while the run continues.
  Status Check() const { return wait_.Check(); }

  Published& own() const { return control_.published(self_, lane_); }
  const Published& of(const HostGroup& group, int i) const {
    return control_.published(group.members[static_cast<size_t>(i)], lane_);
  }
  const ControlBlock& control() const { return control_; }
  int self() const { return self_; }

 private:
  void Signal(const HostGroup& group);
  Status Await(int peer) {
    return wait_.Until(peer, [this, peer] { return Reached(peer); });
  }
  // Whether all expected signals from `peer` have come.
  bool Reached(int peer) const {
    const uint32_t have = control_.signals(lane_, self_, peer).load(std::memory_order_acquire);
    return static_cast<int32_t>(have - expected_[static_cast<size_t>(peer)]) >= 0;
  }

  const ControlBlock control_;
  const int self_;
  const Lane lane_;
  PeerWait wait_;
  std::vector<uint32_t> expected_;  // per rank: signals from it that this rank has waited or will wait for
  std::vector<int> readers_;        // ranks that may still read what is published
};

}  // namespace temper
