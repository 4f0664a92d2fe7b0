// What a communicator promises of collectives with the attribute `background`: they and those that are needed at once
// do not wait for each other.
#pragma once

#include <string>
#include <vector>

#include "device/communicator.h"

namespace temper::collectives {

// Half of the ranks come to one lane only when they are through with the other, first this way round, then that; then
// all are in both at once, many times. What went wrong on this rank, in words; empty: all is well.
std::vector<std::string> CheckLanes(Communicator& communicator);

}  // namespace temper::collectives
