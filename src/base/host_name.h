#pragma once

#include <string>

namespace temper {

// This machine's: on a Slurm cluster the node's, as Slurm's own messages call it.
std::string HostName();

}  // namespace temper
