#include "format/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace temper {
namespace {

TEST(Json, NamesFileLineAndColumnOfAnError) {
  const auto r = ParseJson("{\n  \"a\": 1,\n  oops\n}", "config.json");
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.status().message().find("config.json"), std::string::npos) << r.status().message();
  EXPECT_NE(r.status().message().find("line 3, column"), std::string::npos) << r.status().message();
}

TEST(Json, RefusesDocumentsDeepEnoughToExhaustTheStack) {
  const auto r = ParseJson(std::string(100000, '['), "deep.json");
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.status().message().find("nested"), std::string::npos) << r.status().message();
  EXPECT_TRUE(ParseJson(std::string(200, '[') + std::string(200, ']'), "fine.json").ok());
}

TEST(Json, TypedLookupsNameTheKeyThatIsWrong) {
  const auto j = ParseJson(R"({"n": 3, "s": "x", "none": null})", "f.json");
  ASSERT_TRUE(j.ok());
  EXPECT_EQ(*IntOr(*j, "n", 7, "f.json"), 3);
  EXPECT_EQ(*IntOr(*j, "absent", 7, "f.json"), 7);
  EXPECT_EQ(*IntOr(*j, "none", 7, "f.json"), 7);
  const auto wrong = IntOr(*j, "s", 7, "f.json");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("'s' should be an integer"), std::string::npos);
  EXPECT_FALSE(RequireInt(*j, "absent", "f.json").ok());
}

TEST(Json, OrderedJsonKeepsTheOrderOfTheFile) {
  const auto j = ParseOrderedJson(R"({"z": 1, "a": 2})", "row");
  ASSERT_TRUE(j.ok());
  EXPECT_EQ(j->dump(), R"({"z":1,"a":2})");
}

}  // namespace
}  // namespace temper
