// The collective ops among ranks of one host. Nothing is sent: each rank copies or adds up straight from the arenas of
// the others into its own. One rank sums each element, in the order of ranks, and rounds once, so that all ranks get
// the same bits, run after run.
#pragma once

#include <atomic>
#include <memory>

#include "comm/local/collective_plan.h"
#include "comm/local/host_rank.h"
#include "device/kernel.h"

namespace temper {

// Bytes, counted by the threads that run kernels.
struct Traffic {
  std::atomic<int64_t> sent{0};   // by the ops' cost rules
  std::atomic<int64_t> moved{0};  // actually read from other ranks' memory or sent to them

  // Adds what a member of a group gives to all others.
  void CountExchange(size_t bytes, int members) {
    const auto n = static_cast<int64_t>(bytes) * (members - 1);
    sent.fetch_add(n, std::memory_order_relaxed);
    moved.fetch_add(n, std::memory_order_relaxed);
  }
};

// The lane of a collective: beside the kernels if it has the attribute `background`; with `soon` apart from those.
Lane MeetingLane(const KernelSpec& spec);

// Makes a kernel together with all other members of the group. `rank` and `traffic` must outlive it.
Result<std::unique_ptr<Kernel>> MakeHostCollective(HostRank& rank, const HostGroup& group, const KernelSpec& spec,
                                                   Traffic& traffic);

// The broadcast op: every rank has the value already.
std::unique_ptr<Kernel> MakeBroadcast(const KernelSpec& spec);

}  // namespace temper
