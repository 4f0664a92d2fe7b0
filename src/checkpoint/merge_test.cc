#include "checkpoint/merge.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace temper::merge_test {
namespace {

TEST(MergeRows, GivesTheBitsOfTheScalarTwin) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const int64_t rows : {1, 3, 4, 5, 9}) {
    for (const int64_t columns : {1, 7, 8, 15, 16, 17, 40}) {
      for (const int64_t r : {1, 2, 16}) {
        std::vector<float> w(rows * columns), a(r * columns), b(rows * r);
        for (auto* v : {&w, &a, &b}) {
          for (float& x : *v) x = normal(random);
        }
        std::vector<float> expected = w;
        MergeRows(w.data(), rows, columns, b.data(), a.data(), r, 0.7f);
        MergeRowsReference(expected.data(), rows, columns, b.data(), a.data(), r, 0.7f);
        EXPECT_EQ(w, expected) << rows << " x " << columns << ", r " << r;
      }
    }
  }
}

}  // namespace
}  // namespace temper::merge_test
