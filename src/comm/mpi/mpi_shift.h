// shift among ranks of several hosts: a copy from the rank before where that is on this host, else one message per
// tensor, from arena to arena.
#pragma once

#include <memory>

#include "comm/mpi/mpi_context.h"

namespace temper {

// `plan`: what all members of the group have agreed on (MakeMpiCollective).
std::unique_ptr<Kernel> MakeMpiShift(const MpiContext& context, Lane lane, const GroupLayout& group,
                                     CollectivePlan plan);

}  // namespace temper
