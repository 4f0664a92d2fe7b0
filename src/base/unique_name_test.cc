#include "base/unique_name.h"

#include <gtest/gtest.h>

namespace temper::unique_name_test {
namespace {

TEST(UniqueNames, AreSixteenDigitsThatDiffer) {
  const std::string a = UniqueName(), b = UniqueName();
  EXPECT_NE(a, b);
  for (const std::string& name : {a, b}) {
    EXPECT_EQ(name.size(), 16u);
    EXPECT_EQ(name.find_first_not_of("0123456789abcdef"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace temper::unique_name_test
