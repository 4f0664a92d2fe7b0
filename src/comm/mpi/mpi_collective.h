// The collective ops among ranks of several hosts. Within a host ranks read each other's memory, as in comm/local.
// Between hosts every pair of ranks with data for each other exchanges it directly: the volume is that of a ring, no
// rank waits for another to pass something on, and a sum is made in one place, in a fixed order, and rounded once. If
// each host has one rank of the group the order is that of ranks, and the bits are those of one host; otherwise each
// host adds up its own terms first.
#pragma once

#include <memory>

#include "comm/mpi/mpi_context.h"

namespace temper {

// Gathers a few bytes of every member on all.
class GroupGather {
 public:
  GroupGather(MpiLink& link, GroupLayout group);  // `link` must outlive it
  // all[m * mine.size() ...] comes from member m. All give equally much. Allocates nothing.
  Status Gather(std::span<const std::byte> mine, std::span<std::byte> all);
  const GroupLayout& group() const { return group_; }

 private:
  MpiLink& link_;
  const GroupLayout group_;
  Messages messages_;
};

// Makes a kernel together with all other members of the group, which
// spans several hosts. What `context` refers to must outlive it.
Result<std::unique_ptr<Kernel>> MakeMpiCollective(const MpiContext& context, const GroupLayout& group,
                                                  const KernelSpec& spec);

}  // namespace temper
