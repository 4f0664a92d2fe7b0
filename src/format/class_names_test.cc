#include "format/class_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace temper::class_names_test {
namespace {

using Names = std::vector<std::string>;

TEST(ClassNames, AreInAnOrderThatDependsOnThemAlone) {
  EXPECT_EQ(InOrder({"10", "-1", "9"}).names, (Names{"-1", "9", "10"}));
  EXPECT_EQ(InOrder({"10", "b", "9"}).names, (Names{"10", "9", "b"}));
  EXPECT_EQ(InOrder({"02", "1"}).names, (Names{"02", "1"})) << "a text that no number is printed as";
  EXPECT_EQ(InOrder({"ä", "b", "B"}).names, (Names{"B", "b", "ä"})) << "as Python sorts texts";
}

TEST(ClassNames, NumbersNameTheUnnamed) {
  const ClassNames unnamed{{"LABEL_0", "LABEL_1"}}, named{{"no", "yes"}}, numbers{{"1", "0"}};
  EXPECT_EQ(unnamed.Find("1"), 1);
  EXPECT_EQ(unnamed.Find("LABEL_0"), 0);
  EXPECT_EQ(unnamed.Find("2"), std::nullopt);
  EXPECT_EQ(unnamed.Find("-1"), std::nullopt);
  EXPECT_EQ(named.Find("yes"), 1);
  EXPECT_EQ(named.Find("1"), std::nullopt);
  EXPECT_EQ(numbers.Find("1"), 0);
}

TEST(ClassNames, AreWrittenAsTransformersHasThemAndReadBack) {
  OrderedJson config = OrderedJson::parse(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})");
  const ClassNames classes{{"dog", "cat", "a \"newt\""}};
  WriteClasses(classes, "LlamaForSequenceClassification", 7, &config);
  EXPECT_EQ(Json(config), Json::parse(R"({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"],
      "id2label": {"0": "dog", "1": "cat", "2": "a \"newt\""}, "label2id": {"dog": 0, "cat": 1, "a \"newt\"": 2},
      "num_labels": 3, "pad_token_id": 7})"));
  EXPECT_TRUE(HasClasses(Json(config)));
  EXPECT_EQ(ReadClasses(Json(config), "here").value(), classes);
  config["pad_token_id"] = 3;
  WriteClasses(classes, "X", 7, &config);
  EXPECT_EQ(config["pad_token_id"], 3) << "the file's own stays";
  EXPECT_EQ(ClassNames::FromJson(classes.ToJson()).value(), classes);
}

TEST(ClassNames, WithoutNamesAreCounted) {
  EXPECT_FALSE(HasClasses(Json::parse(R"({"architectures": ["LlamaForCausalLM"]})")));
  EXPECT_EQ(ReadClasses(Json::object(), "here").value().names, (Names{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(ReadClasses({{"num_labels", 1}}, "here").value().names, (Names{"LABEL_0"}));
}

TEST(ClassNames, BrokenOnesAreRefused) {
  for (const char* text : {R"({"id2label": []})", R"({"id2label": {}})", R"({"id2label": {"1": "a"}})",
                           R"({"id2label": {"0": "a", "1": "a"}})", R"({"num_labels": 0})", R"({"num_labels": 1e9})",
                           R"({"num_labels": "x"})"}) {
    const auto classes = ReadClasses(Json::parse(text), "config.json");
    ASSERT_FALSE(classes.ok()) << text;
    EXPECT_NE(classes.status().message().find("config.json"), std::string::npos) << classes.status().message();
  }
}

}  // namespace
}  // namespace temper::class_names_test
