#include "comm/mpi/started_by_mpi.h"

#include <cstdlib>

namespace temper {

bool StartedByMpi() {
  // Open MPI's mpirun; srun --mpi=pmix; srun --mpi=pmi2 and MPICH's.
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

bool StartedBySrun() {
  return std::getenv("SLURM_STEP_ID") != nullptr && std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr;
}

}  // namespace temper
