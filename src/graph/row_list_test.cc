#include "graph/row_list.h"

#include <gtest/gtest.h>

namespace temper::row_list_test {
namespace {

using Rows = std::vector<int64_t>;

TEST(RowList, ComesBackInItsOrder) {
  for (const Rows& rows : {Rows{0}, Rows{5, 7, 8, 9}, Rows{9, 8, 7}, Rows{3, 4, 1, 2}}) {
    const auto read = ParseRowList(PrintRowList(rows));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, rows);
  }
  EXPECT_EQ(PrintRowList(Rows{5, 7, 8, 9, 2}), "5,7-9,2");
}

TEST(RowList, OtherTextsAreRefused) {
  for (const char* text : {"", ",", "5,", "5-", "-5", "7-5", "5 6", "5;6", "a", "5-6-7", "0-99999999999",
                           "9223372036854775808", "5,5", "1-4,3"}) {
    EXPECT_EQ(ParseRowList(text).status().code(), StatusCode::kCorrupt) << text;
  }
}

}  // namespace
}  // namespace temper::row_list_test
