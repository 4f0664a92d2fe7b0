#include "format/python_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace temper::python_json_test {
namespace {

// As files of models with Mamba-2 have it.
constexpr char kConfig[] = R"({
  "time_step_limit": [
    0.0,
    Infinity
  ],
  "a": -Infinity,
  "b": "NaN, \"Infinity",
  "c": {
    "NaN": NaN
  }
}
)";

TEST(PythonJson, BareNumbersThatJsonLacksAreReadAsTransformers5WritesThem) {
  const auto json = ParsePythonJson(kConfig, "config.json");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json, Json::parse(R"({"time_step_limit": [0.0, {"__float__": "Infinity"}], "a": {"__float__": "-Infinity"},
                                   "b": "NaN, \"Infinity", "c": {"NaN": {"__float__": "NaN"}}})"));
}

TEST(PythonJson, IsPrintedInTheFormOfItsSource) {
  const auto json = ParseOrderedPythonJson(kConfig, "config.json");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(PrintPythonJson(*json, kConfig), kConfig);
  const std::string newer = json->dump(2) + "\n";
  EXPECT_NE(newer.find("__float__"), std::string::npos);
  EXPECT_EQ(PrintPythonJson(*ParseOrderedPythonJson(newer, "config.json"), newer), newer);
}

TEST(PythonJson, AFaultBesideSuchANumberIsTheOneReported) {
  const auto json = ParsePythonJson("{\"a\": Infinity,\n\"b\": oops}", "config.json");
  ASSERT_FALSE(json.ok());
  EXPECT_NE(json.status().message().find("config.json: not valid JSON at line 2"), std::string::npos)
      << json.status().message();
  EXPECT_FALSE(ParsePythonJson("{\"a\": NaNa}", "config.json").ok());
  EXPECT_FALSE(ParsePythonJson("{\"a\": infinity}", "config.json").ok());
}

}  // namespace
}  // namespace temper::python_json_test
