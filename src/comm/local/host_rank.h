// HostRank: one rank among those of its host: their shared memory and the way they meet. Communicators are built from
// it, for one host or many.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/local/host_memory.h"
#include "comm/local/peer_watch.h"
#include "comm/local/rendezvous.h"
#include "comm/local/shared_arenas.h"
#include "comm/local/transfers.h"

namespace temper {

class HostRank {
 public:
  // Called by the thread that will run the rank.
  HostRank(std::shared_ptr<HostMemory> memory, int self, int global_rank);
  // Peers that still wait for this rank learn that it has left.
  ~HostRank();
  HostRank(const HostRank&) = delete;
  HostRank& operator=(const HostRank&) = delete;

  int self() const { return inline_.self(); }
  const ControlBlock& control() const { return memory_->control(); }
  // The Rendezvous of one lane of meetings. Calls that allocate, agree or make kernels meet in the inline one.
  Rendezvous& rendezvous(Lane lane) {
    return lane == Lane::kInline ? inline_ : lane == Lane::kBackground ? background_ : soon_;
  }
  SharedArenas& arenas() { return arenas_; }
  Transfers& transfers() { return transfers_; }
  const HostGroup& everybody() const { return everybody_; }

  // As Communicator::Check, for the ranks of this host.
  Status Check();

  // In the inline lane: all[i * mine.size() ...] comes from member i. Any size, the same for all. Allocates
  // nothing.
  Status AllGather(const HostGroup& group, Meeting meeting, std::span<const std::byte> mine, std::span<std::byte> all);
  // Elementwise over the members, in order: all get the same bits.
  Status AllReduce(const HostGroup& group, Meeting meeting, std::span<double> values);
  Status Broadcast(const HostGroup& group, std::span<std::byte> bytes, int root);

 private:
  const std::shared_ptr<HostMemory> memory_;
  HostGroup everybody_;
  Rendezvous inline_, background_, soon_;
  SharedArenas arenas_;
  Transfers transfers_;
  PeerWatch beside_;  // of Check
};

}  // namespace temper
