#include "base/edit_distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace temper::edit_distance_test {
namespace {

// The table of distances between all beginnings of two words.
size_t ByTable(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

TEST(EditDistance, IsThatOfTheTable) {
  std::mt19937 random(7);
  const auto word = [&](size_t longest) {
    std::string w(random() % (longest + 1), ' ');
    for (char& c : w) c = static_cast<char>('a' + random() % 3);
    return w;
  };
  for (int i = 0; i < 5000; ++i) {
    const std::string a = word(i % 10 == 0 ? 90 : 9), b = word(i % 10 == 0 ? 64 : 9);
    ASSERT_EQ(EditDistance(a, b), ByTable(a, b)) << a << " " << b;
  }
}

TEST(EditDistance, CapitalsAreSmallLetters) {
  EXPECT_EQ(EditDistance("Llama", "lLAMA"), 0u);
  EXPECT_EQ(EditDistance("AB", "ba"), 1u);
}

}  // namespace
}  // namespace temper::edit_distance_test
