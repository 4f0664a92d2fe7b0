#include "program/range_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace temper::range_counts_test {
namespace {

TEST(RangeCounts, AgreesWithACountForEveryByte) {
  std::mt19937 random(7);
  constexpr int64_t kSpace = 64;
  for (int round = 0; round < 200; ++round) {
    RangeCounts counts;
    std::vector<AddressRange> earlier;
    std::vector<uint32_t> bytes(kSpace, 0);
    for (uint32_t count = 1; count <= 40; ++count) {
      const auto any_range = [&] {
        const int64_t a = static_cast<int64_t>(random() % (kSpace + 1)),
                      b = static_cast<int64_t>(random() % (kSpace + 1));
        return AddressRange{Bytes{std::min(a, b)}, Bytes{std::max(a, b)}};
      };
      const bool again = count % 3 == 0;  // ranges that come again take a way of their own
      if (!again) earlier.push_back(any_range());
      const AddressRange set = earlier[again ? random() % earlier.size() : earlier.size() - 1], asked = any_range();
      counts.Set(set, count);
      std::fill(bytes.begin() + set.begin.v, bytes.begin() + set.end.v, count);
      const auto begin = bytes.begin() + asked.begin.v, end = bytes.begin() + asked.end.v;
      ASSERT_EQ(counts.LatestIn(asked), begin == end ? 0 : *std::max_element(begin, end));
    }
  }
}

}  // namespace
}  // namespace temper::range_counts_test
