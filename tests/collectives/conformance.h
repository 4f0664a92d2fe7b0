// What every communicator must do, as one list of cases that ranks run together: threads, processes and MPI run the
// same. Expected values come from plain scalar loops over inputs that any rank can compute for all.
#pragma once

#include <string>
#include <vector>

#include "device/communicator.h"

namespace temper::collectives {

// Runs all cases on the world of `communicator`. What went wrong on this rank, in words; empty: all is well. Ends early
// where calls fail. `ranks_per_host`: how ranks lie on hosts, each of which adds up its own terms first; 0: on one.
// `acc_apart`: what a reduce_scatter adds its sum to is added when the sum has been rounded, and to none of f64.
std::vector<std::string> CheckConformance(Communicator& communicator, int ranks_per_host = 0, bool acc_apart = false);

// Digest of what this rank's sums over awkward floats gave: equal on all ranks and in all runs of the same mesh.
uint64_t DigestOfSums(Communicator& communicator, int ranks_per_host = 0);

}  // namespace temper::collectives
