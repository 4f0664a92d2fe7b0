#include "run/calibration.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace temper::calibration_test {
namespace {

TEST(Calibration, EndsWithTheReasonWhereItWouldTakeTooLong) {
  std::vector<std::string> said;
  const auto measured = CalibrateThisMachine(
      PosixEnv(), "/nowhere", [&](const std::string& what) { said.push_back(what); }, Seconds{1e-9});
  ASSERT_FALSE(measured.ok());
  EXPECT_NE(measured.status().message().find("was not measured within"), std::string::npos)
      << measured.status().message();
  EXPECT_NE(measured.status().message().find("nothing is saved"), std::string::npos);
  EXPECT_EQ(said.size(), 1u) << "it did not go on with the next number of ranks";
}

}  // namespace
}  // namespace temper::calibration_test
