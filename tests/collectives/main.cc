// The test program, which is also the program of its ranks: Launch starts copies of whoever calls it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/local/local_communicator.h"
#include "rank_program.h"

int main(int argc, char** argv) {
  using namespace temper;
  if (const auto launched = RankFromEnvironment()) {
    TEMPER_CHECK(argc == 4) << "usage: PROGRAM CASE CULPRIT OUT";
    const collectives::Join join = [&](const Patience& patience) -> Result<std::unique_ptr<Communicator>> {
      TEMPER_ASSIGN_OR_RETURN(auto communicator, JoinLaunched(*launched, patience));
      return std::unique_ptr<Communicator>(std::move(communicator));
    };
    return collectives::RunRank(join, argv[1], std::atoi(argv[2]), argv[3]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
