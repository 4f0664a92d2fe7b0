#include "format/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace temper::json_test {
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

TEST(Json, AnErrorInOneLineNamesItsColumnAndInSeveralItsLine) {
  const auto row = ParseJson(R"({"a": 1,, "b": 2})", "d.jsonl line 7");
  ASSERT_FALSE(row.ok());
  EXPECT_EQ(row.status().message().find("d.jsonl line 7: not valid JSON at column 9: "), 0u) << row.status().message();
  const auto file = ParseJson("{\n\"a\": 1,,\n\"b\": 2}", "f.json");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().message().find("f.json: not valid JSON at line 2, column 8: "), 0u)
      << file.status().message();
}

TEST(Json, RefusesANulByteWhereverItStands) {
  using namespace std::string_literals;
  for (const std::string& text : {"{}\0junk"s, "{}\0"s, "\0{}"s, "{\0}"s, "[1,\0 2]"s, "[\"a\0b\"]"s, "\0"s}) {
    const auto r = ParseJson(text, "f.json");
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.status().message().find("NUL"), std::string::npos) << r.status().message();
    EXPECT_FALSE(ParseOrderedJson(text, "f.json").ok());
  }
  const auto r = ParseJson("{}\n\0"s, "f.json");
  EXPECT_NE(r.status().message().find("line 2, column 1"), std::string::npos) << r.status().message();
  EXPECT_TRUE(ParseJson("[\"\\u0000\"]", "f.json").ok()) << "escaped, it is a character like any other";
}

TEST(Json, RefusesIntegersThatDoNotFit) {
  const auto j =
      ParseJson(R"({"most": 9223372036854775807, "more": 9223372036854775808, "least": -9223372036854775808})", "f");
  ASSERT_TRUE(j.ok());
  EXPECT_EQ(*IntOr(*j, "most", 0, "f"), INT64_MAX);
  EXPECT_EQ(*IntOr(*j, "least", 0, "f"), INT64_MIN);
  EXPECT_FALSE(IntOr(*j, "more", 0, "f").ok());
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
}  // namespace temper::json_test
