#include "comm/mpi/mpi_context.h"

#include <cstring>

namespace temper {

std::byte* Staging::memory() {
  if (!memory_) memory_ = std::make_unique<std::byte[]>(static_cast<size_t>(kSize.v));
  return memory_.get();
}

HostGroup MembersHere(const GroupLayout& group, const HostLayout& hosts) {
  HostGroup here{.index = group.place(group.index())};
  for (const int m : group.hosts()[static_cast<size_t>(group.own_host())]) {
    here.members.push_back(hosts.place(group.ranks()[static_cast<size_t>(m)]));
  }
  return here;
}

}  // namespace temper
