// PeerOperands: the operands of one call on all ranks of a group that share this host, as addresses of this rank.
#pragma once

#include <vector>

#include "comm/local/collective_plan.h"
#include "comm/local/host_rank.h"
#include "device/kernel.h"

namespace temper {

class PeerOperands {
 public:
  // For nodes of `tensors` tensors that meet in `lane`. `outputs`: whether peers also read each other's outputs.
  PeerOperands(HostRank& rank, Lane lane, HostGroup group, size_t tensors, bool outputs);

  // Meets the others: shows them this rank's operands for the tensors [first, first + count) of the plan, and waits
  // until they have shown theirs. REQUIRES: count <= kTensorsPerMeeting.
  Status Open(Meeting meeting, const CollectivePlan& plan, const KernelArgs& args, size_t first, size_t count);

  // After the last of them was read: the peers' operands are no longer resident in this process. Otherwise, if many
  // ranks gather a model from each other, each would seem to take all of it.
  void Forget(const CollectivePlan& plan, size_t first, size_t count) const;

  // Of member i of the group, tensor first + t. Undefined for tensors without elements.
  std::byte* input(int i, size_t t) const { return addresses_[Index(i, t)]; }
  std::byte* output(int i, size_t t) const { return addresses_[Index(i, t) + 1]; }
  const HostGroup& group() const { return group_; }
  // The lane where they meet.
  Rendezvous& rendezvous() const { return rendezvous_; }

 private:
  size_t Index(int i, size_t t) const { return 2 * (static_cast<size_t>(i) * stride_ + t); }
  Rendezvous& rendezvous_;
  SharedArenas& arenas_;
  const HostGroup group_;
  const size_t stride_;
  const bool outputs_;
  std::vector<std::byte*> addresses_;
};

}  // namespace temper
