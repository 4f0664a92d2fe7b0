// Which launcher has started this process, from its environment. A build without MPI knows it, too, so that it can
// report what it lacks instead of running the same thing several times.
#pragma once

namespace temper {

// Whether mpirun or srun has started this process as one of several ranks.
bool StartedByMpi();

// Whether srun has, without mpirun.
bool StartedBySrun();

}  // namespace temper
