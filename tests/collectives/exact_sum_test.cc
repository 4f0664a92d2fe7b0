// Sums of integers over ranks: the denominators of weighted means.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "comm/local/local_communicator.h"
#include "train/peers.h"

namespace temper::collectives::exact_sum_test {
namespace {

TEST(ExactSum, OfIntegersBeyondTheRangeOfADouble) {
  struct Mesh {
    int ranks;
    int64_t data_ranks, context_ranks;
  };
  for (const auto& [ranks, data_ranks, context_ranks] : {Mesh{1, 1, 1}, {2, 2, 1}, {4, 2, 1}, {4, 1, 2}, {3, 1, 1}}) {
    ThreadWorld world(ranks);
    std::vector<std::array<int64_t, 2>> sums(static_cast<size_t>(ranks));
    // Neighbouring ranks share tokens, which count once.
    const int64_t parts = data_ranks * context_ranks, copies = ranks / parts;
    const auto of_part = [](int64_t part) { return (int64_t{1} << 60) + 3 * part + 1; };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator = world.Join(rank);
        const Peers peers{.communicator = communicator.get(), .data_ranks = data_ranks, .context_ranks = context_ranks};
        std::array<int64_t, 2> values = {of_part(rank / copies), 7};
        EXPECT_TRUE(peers.SumExact(values).ok());
        sums[static_cast<size_t>(rank)] = values;
      });
    }
    for (std::thread& t : threads) t.join();
    int64_t want = 0;
    for (int64_t part = 0; part < parts; ++part) want += of_part(part);
    for (const auto& sum : sums) EXPECT_EQ(sum, (std::array<int64_t, 2>{want, 7 * parts})) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace temper::collectives::exact_sum_test
