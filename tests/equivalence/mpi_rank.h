// A process of mpirun for mesh_test.cc: the test program is also the program of its ranks.
#pragma once

#include "device/communicator.h"

namespace temper::tiny::mesh_test {

// Trains on the mesh of one of the cases, whose ranks are those of `communicator`; returns the exit code.
int RunMpiRank(Communicator& communicator, int case_number);

}  // namespace temper::tiny::mesh_test
