// Tests that collectives with the attribute `background` and blocking ones do not wait for each other.
#pragma once

#include <string>
#include <vector>

#include "device/communicator.h"

namespace temper::collectives {

// Half of the ranks enter one lane only after finishing the other, for both orders; then all are in both at once, many
// times. Returns this rank's errors as text; empty: none.
std::vector<std::string> CheckLanes(Communicator& communicator);

}  // namespace temper::collectives
