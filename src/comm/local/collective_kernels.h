// The collective ops among ranks of one host. Nothing is sent: each rank copies or adds up straight from the arenas of
// the others into its own. An element is summed by one rank, in the order of ranks, rounded once, so that everybody has
// the same bits and every run gives them again.
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
  std::atomic<int64_t> moved{0};  // in fact read from other ranks' memory or sent to them

  // Of what a member of a group gives to all others.
  void CountExchange(size_t bytes, int members) {
    const auto n = static_cast<int64_t>(bytes) * (members - 1);
    sent.fetch_add(n, std::memory_order_relaxed);
    moved.fetch_add(n, std::memory_order_relaxed);
  }
};

// Where a collective meets: beside the kernels if it has the attribute `background`; with `soon` apart from those.
Lane MeetingLane(const KernelSpec& spec);

// Makes a kernel together with all other members of the group. `rank` and `traffic` must outlive it.
Result<std::unique_ptr<Kernel>> MakeHostCollective(HostRank& rank, const HostGroup& group, const KernelSpec& spec,
                                                   Traffic& traffic);

// The broadcast op: every rank has the value already.
std::unique_ptr<Kernel> MakeBroadcast(const KernelSpec& spec);

}  // namespace temper
