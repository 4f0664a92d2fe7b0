// In place of everything else where MPI was not found when Temper was built.
#include "comm/mpi/mpi_communicator.h"

namespace temper {

bool HasMpi() {
  return false;
}

Result<std::unique_ptr<Communicator>> JoinMpi(const MpiOptions&) {
  return Unsupported(
      "this build of temper has no MPI: install libopenmpi-dev and build again, or start ranks on this machine with "
      "--nprocs");
}

}  // namespace temper
