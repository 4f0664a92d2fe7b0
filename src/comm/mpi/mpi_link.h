// MpiLink: MPI as the rest of this folder uses it: messages between pairs of ranks, posted and then polled for. No wait
// blocks: each checks whether the run was stopped, and whether the ranks it waits for are alive.
//
// Thread rule: one link per lane, and one thread at a time that posts and waits there. Every call of MPI is made under
// one lock, because lanes and the watch (mpi_watch.h) have threads of their own.
#pragma once

#include <mpi.h>

#include <array>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "comm/local/control_block.h"

namespace temper {

// OK, or MPI's text for an error code.
Status FromMpi(int code, const char* what);

// What a message belongs to. Ranks that have come for different things do not take each other's bytes.
enum class Matter : int { kStep = 1, kBackground, kSoon, kAgreement, kFarewell, kTransfer };
// For the collectives of a lane of meetings.
constexpr Matter MatterOf(Lane lane) {
  return lane == Lane::kInline ? Matter::kStep : lane == Lane::kBackground ? Matter::kBackground : Matter::kSoon;
}

// Messages that were posted and are waited for together. Both ends post those of a pair in the same order.
struct Messages {
  explicit Messages(Matter of = Matter::kStep) : matter(of) {}
  const Matter matter;
  std::vector<MPI_Request> requests;
  std::vector<int> peers;  // global ranks, one per request
  void Clear() {
    requests.clear();
    peers.clear();
  }
  void Reserve(size_t n) {
    requests.reserve(n);
    peers.reserve(n);
  }
};

class MpiLink {
 public:
  // Calls `judge(peer, waited)` about ten times a second while waiting for `peer`; its error ends the wait.
  using Judge = std::function<Status(int peer, Seconds waited)>;
  // `comm` is of all ranks and used for nothing else. Errors of the link are reported to `control` as those of the run.
  // `sleeper`: this rank's, of the link's lane, where ranks of the host see that it waits.
  MpiLink(MPI_Comm comm, std::mutex& lock, const ControlBlock& control, Sleeper& sleeper, int rank, int size,
          bool crowded);
  void set_judge(Judge judge) { judge_ = std::move(judge); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Set while this rank waits for a message: the global rank + 1 that it waits for.
  const std::atomic<int>& waiting_for() const { return waiting_for_; }

  // REQUIRES: the memory stays unchanged until Wait has returned.
  Status Send(const void* data, size_t bytes, int peer, Messages* messages);
  Status Receive(void* data, size_t bytes, int peer, Messages* messages);
  // Until all messages have been sent or received; removes them.
  Status Wait(Messages* messages);

  // Ends the run for all ranks of this host (the watch tells the others), and returns why it has ended.
  Status Stop(const Status& cause) const;

 private:
  Status Post(int code, Messages* messages, MPI_Request request, int peer);
  void Show(int peer);  // shows that it is waited for; -1: none

  const MPI_Comm comm_;
  std::mutex& lock_;
  const ControlBlock control_;
  Sleeper& sleeper_;
  const int rank_, size_;
  const bool crowded_;  // ranks share processors
  Judge judge_;
  std::atomic<int> waiting_for_{0};
  std::vector<int> indices_;
};

// One per lane, in their order.
using MpiLinks = std::array<MpiLink, kNumLanes>;

}  // namespace temper
