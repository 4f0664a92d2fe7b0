#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "comm/mpi/mpi_communicator.h"
#include "mpi_rank.h"

int main(int argc, char** argv) {
  using namespace temper;
  if (argc == 4 && std::string_view(argv[1]) == "--mpi") {  // RANKS_PER_HOST CASE
    const auto communicator = JoinMpi({.ranks_per_host = std::atoi(argv[2])});
    TEMPER_CHECK(communicator.ok()) << communicator.status().message();
    return tiny::mesh_test::RunMpiRank(**communicator, std::atoi(argv[3]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
