// Tests send and recv, also beside collectives on another thread.
#pragma once

#include <string>
#include <vector>

#include "device/communicator.h"

namespace temper::collectives {

// Ranks send values around a ring of all of them, in both directions, while
// they add up others. Returns this rank's errors as text; empty: none.
std::vector<std::string> CheckTransfers(Communicator& communicator);

// A transfer's kernel along pp, an axis over all ranks.
KernelSpec TransferSpec(Op op, int peer, int tag, const TensorType& type);

}  // namespace temper::collectives
