// shift among ranks of several hosts: a copy from the rank before if that is on this host, otherwise one message per
// tensor, from arena to arena.
#pragma once

#include <memory>

#include "comm/mpi/mpi_context.h"

namespace temper {

// `plan`: as agreed by all members of the group (MakeMpiCollective).
std::unique_ptr<Kernel> MakeMpiShift(const MpiContext& context, Lane lane, const GroupLayout& group,
                                     CollectivePlan plan);

}  // namespace temper
