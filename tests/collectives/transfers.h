// What a communicator promises of send and recv, which is to hold beside collectives on another thread.
#pragma once

#include <string>
#include <vector>

#include "device/communicator.h"

namespace temper::collectives {

// Ranks send values around a ring of all of them, in both directions, while they add up others. What went wrong on this
// rank, in words; empty: all is well.
std::vector<std::string> CheckTransfers(Communicator& communicator);

// A transfer's kernel along pp, which has all ranks.
KernelSpec TransferSpec(Op op, int peer, int tag, const TensorType& type);

}  // namespace temper::collectives
