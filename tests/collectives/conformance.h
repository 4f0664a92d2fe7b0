// The contract of all communicators as one list of cases that ranks run together; threads, processes and MPI run the
// same list. Expected values come from plain scalar loops; any rank can compute the inputs of all.
#pragma once

#include <string>
#include <vector>

#include "device/communicator.h"

namespace temper::collectives {

// Runs all cases on the world of `communicator`. Returns this rank's errors as text; empty: none. Ends early if calls
// fail. `ranks_per_host`: ranks on each host, which adds up its own terms first; 0: all on one. `acc_apart`: a
// reduce_scatter rounds its sum before it adds acc, and has no acc for f64.
std::vector<std::string> CheckConformance(Communicator& communicator, int ranks_per_host = 0, bool acc_apart = false);

// Digest of this rank's sums of floats that depend on the order: equal on all ranks and in all runs of the same mesh.
uint64_t DigestOfSums(Communicator& communicator, int ranks_per_host = 0);

}  // namespace temper::collectives
