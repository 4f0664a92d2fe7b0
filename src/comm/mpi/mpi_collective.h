// The collective ops among ranks of several hosts. Within a host ranks read each other's memory, as comm/local has it.
// Between hosts every pair of ranks that have something for each other exchange it directly: the volume is that of a
// ring, no rank waits for another to pass something on, and a sum is made in one place, in a fixed order, and rounded
// once. Where each host has one rank of the group the order is that of ranks, and the bits are those of one host; else
// each host adds up its own terms first.
#pragma once

#include <array>
#include <memory>

#include "comm/local/collective_kernels.h"
#include "comm/mpi/host_layout.h"
#include "comm/mpi/mpi_link.h"

namespace temper {

// Memory that chunks of messages pass through; one per lane, whose kernels take turns.
class Staging {
 public:
  static constexpr Bytes kSize = MiB(16);
  std::byte* memory();  // allocated and touched when it is first asked for

 private:
  std::unique_ptr<std::byte[]> memory_;
};

// What the kernels of a rank work with.
struct MpiContext {
  MpiLinks& links;
  std::array<Staging, kMeetingLanes>& stagings;
  HostRank& host;
  const HostLayout& hosts;
  Traffic& traffic;

  MpiLink& link(Lane lane) const { return links[static_cast<size_t>(lane)]; }
  // REQUIRES: IsMeetingLane(lane).
  Staging& staging(Lane lane) const { return stagings[static_cast<size_t>(lane)]; }
};

// The members of the group that share this rank's host.
HostGroup MembersHere(const GroupLayout& group, const HostLayout& hosts);

// A few bytes of every member to all.
class GroupGather {
 public:
  GroupGather(MpiLink& link, GroupLayout group);  // `link` must outlive it
  // all[m * mine.size() ...]: what member m gave. All give as much. Allocates nothing.
  Status Gather(std::span<const std::byte> mine, std::span<std::byte> all);
  const GroupLayout& group() const { return group_; }

 private:
  MpiLink& link_;
  const GroupLayout group_;
  Messages messages_;
};

// Makes a kernel together with all other members of the group, which does not lie on one host. What `context` refers to
// must outlive it.
Result<std::unique_ptr<Kernel>> MakeMpiCollective(const MpiContext& context, const GroupLayout& group,
                                                  const KernelSpec& spec);

}  // namespace temper
