// What import makes of prompt styles of other tools, as the templates that it names print them, beside these tools' own
// texts (tests/data/make_recipe_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "config/user_format.h"
#include "data/record.h"
#include "data/template/jinja.h"
#include "data/template/known_templates.h"
#include "format/json.h"

namespace temper::recipe_golden_test {
namespace {

OrderedJson Goldens(const char* of) {
  const auto text = ReadTextFile(PosixEnv(), std::string(kProjectFolder) + "/tests/data/recipe_goldens.json");
  EXPECT_TRUE(text.ok()) << text.status().message();
  return (*ParseOrderedJson(*text, "goldens"))[of];
}

TEST(RecipeGolden, APromptStyleOfOnesOwnInAxolotlIsThatRowTemplate) {
  const OrderedJson goldens = Goldens("styles");
  ASSERT_EQ(goldens.size(), 20u);
  for (const OrderedJson& golden : goldens) {
    const auto source = RowTemplateOf(golden["type"]);
    ASSERT_TRUE(source.has_value()) << golden;
    EXPECT_TRUE(IsTemplateText(*source)) << *source;
    const auto parsed = Template::Parse(*source, "row_template");
    ASSERT_TRUE(parsed.ok()) << *source << parsed.status().message();
    const auto rendered = parsed->RenderWithGenerations(golden["row"]);
    ASSERT_TRUE(rendered.ok()) << rendered.status().message();
    const std::string prompt = golden["prompt"], answer = golden["answer"];
    EXPECT_EQ(rendered->text, prompt + answer) << *source;
    ASSERT_EQ(rendered->generations.size(), 1u);
    EXPECT_EQ(rendered->generations[0].begin, prompt.size());
    EXPECT_EQ(rendered->generations[0].end, prompt.size() + answer.size());
  }
}

TEST(RecipeGolden, WhatATemplateCannotSayIsNone) {
  for (const char* type :
       {R"({"format": "{instruction} {other}"})", R"({"format": "{instruction!r}"})", R"({"format": "{instruction"})",
        R"({"field_output": "my answer"})", R"({"field_output": "in"})", R"({"unknown": "x"})",
        R"({"no_input_format": "{input}"})", R"("alpaca")"}) {
    EXPECT_FALSE(RowTemplateOf(*ParseOrderedJson(type, "")).has_value()) << type;
  }
}

TEST(RecipeGolden, TheTemplateAlpacaWritesRowsWithAnInputAsAxolotlDoes) {
  const auto& known = KnownTemplates();
  const auto alpaca = std::find_if(known.begin(), known.end(), [](const auto& one) { return one.name == "alpaca"; });
  ASSERT_NE(alpaca, known.end());
  const auto parsed = Template::Parse(std::string(alpaca->source), "alpaca");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  for (const OrderedJson& golden : Goldens("alpaca")) {
    const auto record = MakeRecord(golden["row"], RecordFormat::kInstruction, "row", "\n\n### Input:\n");
    ASSERT_TRUE(record.ok()) << record.status().message();
    const OrderedJson context = {
        {"messages", AsConversation(*record).messages}, {"bos_token", ""}, {"eos_token", "<E>"}};
    const auto text = parsed->Render(context);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, golden["prompt"].get<std::string>() + golden["row"]["output"].get<std::string>() + "<E>\n\n");
  }
}

}  // namespace
}  // namespace temper::recipe_golden_test
