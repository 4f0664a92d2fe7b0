// A communicator over MPI, for ranks on several machines. Ranks that share a host read each other's memory
// (comm/local). Between hosts each byte is sent once, by point-to-point messages: MPI's own reductions do not support
// bf16, round after every term, and Open MPI's take ten times as long.
#pragma once

#include <memory>

#include "device/communicator.h"

namespace temper {

// Whether this build has MPI.
bool HasMpi();

struct MpiOptions {
  // Not 0: at most this many ranks share memory, as if others were on other hosts. For tests on one machine.
  int ranks_per_host = 0;
};

// Joins the ranks that were started together. Once per process; its destructor ends MPI. A second thread answers for
// this rank while it computes. Errors: kUnsupported in a build without MPI.
Result<std::unique_ptr<Communicator>> JoinMpi(const MpiOptions& options = {});

}  // namespace temper
