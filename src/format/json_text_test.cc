#include "format/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "format/json.h"

namespace temper::json_text_test {
namespace {

TEST(JsonText, AStringReadsBackAsItself) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "ä語😀";
  std::string text;
  AppendJsonString(all, text);
  AppendJsonString("", text += ",");
  EXPECT_EQ(Json::parse("[" + text + "]"), Json({all, ""}));
}

TEST(JsonText, ANumberReadsBackAsItselfAndOfItsKind) {
  for (const double value : {0.0, -0.0, 1.0, 1e5, 0.1, 1e300, 5e-324, static_cast<double>(0.1F)}) {
    std::string text;
    AppendJsonDouble(value, text);
    const Json read = Json::parse(text);
    EXPECT_TRUE(read.is_number_float()) << text;
    EXPECT_EQ(read.get<double>(), value) << text;
    EXPECT_EQ(std::signbit(read.get<double>()), std::signbit(value)) << text;
  }
  std::string text;
  AppendJsonDouble(std::nan(""), text);
  AppendJsonInt(std::numeric_limits<int64_t>::min(), text += ",");
  AppendJsonUnsigned(std::numeric_limits<uint64_t>::max(), text += ",");
  EXPECT_EQ(text, "null,-9223372036854775808,18446744073709551615");
}

}  // namespace
}  // namespace temper::json_text_test
