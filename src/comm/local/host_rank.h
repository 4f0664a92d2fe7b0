// HostRank: one rank among those of its host: the memory they share and the way they meet. What communicators are made
// of, whether the host is all there is or one of many.
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
  // Of one lane of meetings. What allocates, agrees or makes kernels meets in the inline one.
  Rendezvous& rendezvous(Lane lane) {
    return lane == Lane::kInline ? inline_ : lane == Lane::kBackground ? background_ : soon_;
  }
  SharedArenas& arenas() { return arenas_; }
  Transfers& transfers() { return transfers_; }
  const HostGroup& everybody() const { return everybody_; }

  // As Communicator::Check, of the ranks of this host.
  Status Check();

  // In the inline lane: all[i * mine.size() ...]: what member i gave. Any size, which all give alike. Allocates
  // nothing.
  Status AllGather(const HostGroup& group, Meeting meeting, std::span<const std::byte> mine, std::span<std::byte> all);
  // Elementwise over the members, in their order: everybody gets the same bits.
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
