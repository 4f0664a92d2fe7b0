// MpiContext: what a rank's kernels for groups over several hosts share.
#pragma once

#include <array>
#include <memory>

#include "comm/local/collective_kernels.h"
#include "comm/mpi/host_layout.h"
#include "comm/mpi/mpi_link.h"

namespace temper {

// Memory for chunks of messages; one per lane, whose kernels take turns.
class Staging {
 public:
  static constexpr Bytes kSize = MiB(16);
  std::byte* memory();  // allocated and touched on first use

 private:
  std::unique_ptr<std::byte[]> memory_;
};

// The surroundings of a rank's kernels.
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

}  // namespace temper
