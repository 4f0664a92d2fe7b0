#include "data/unprinted_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/template/conversation.h"

namespace temper::unprinted_fields_test {
namespace {

ChatTemplate Template(const std::string& source) {
  auto chat = ChatTemplate::FromSource(source, "test template", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  TEMPER_CHECK(chat.ok()) << chat.status().message();
  return *std::move(chat);
}

// "reasoning 2": the field and the number of its message, from 1.
std::vector<std::string> Unprinted(const std::string& source, const std::string& conversation,
                                   const std::string& tools = "null", bool all_counts = false) {
  const ChatTemplate chat = Template(source);
  OrderedJson messages = OrderedJson::parse(conversation);
  const Status normal = NormalizeMessages(messages, "test");
  EXPECT_TRUE(normal.ok()) << normal.message();
  const OrderedJson offered = OrderedJson::parse(tools);
  const auto chats = chat.RenderWithSpans(messages, offered);
  EXPECT_TRUE(chats.ok()) << chats.status().message();
  std::vector<std::string> out;
  if (!chats.ok()) return out;
  for (const UnprintedField& field : FindUnprintedFields(chat, messages, offered, {}, *chats, all_counts)) {
    out.push_back(field.name + (field.message ? " " + std::to_string(*field.message + 1) : ""));
  }
  return out;
}
using Names = std::vector<std::string>;

constexpr const char* kContentAlone =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
// As DeepSeek's R1: what was thought is left out of every turn, and the prompt opens a block.
constexpr const char* kCutsThoughts =
    "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>\n{% endif %}";
// As Qwen 3's: only the last turn has its reasoning.
constexpr const char* kThinksLast =
    "{% for m in messages %}<{{ m.role }}>{% if loop.last and m.reasoning_content %}<think>{{ m.reasoning_content }}"
    "</think>{% endif %}{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(UnprintedFields, ReasoningThatTheTemplateLeavesOutIsFoundUnderEachOfItsNames) {
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    std::string messages = R"([{"role":"user","content":"2+2?"},{"role":"assistant","content":"4","KEY":"Easy."},
        {"role":"user","content":"And 3+3?"},{"role":"assistant","content":"6"}])";
    messages.replace(messages.find("KEY"), 3, key);
    EXPECT_EQ(Unprinted(kContentAlone, messages), Names{"reasoning 2"}) << key;
    EXPECT_EQ(Unprinted(kThinksLast, messages), Names{}) << key;
  }
}

TEST(UnprintedFields, ReasoningWithinTheContentIsFound) {
  const std::string messages = R"([{"role":"user","content":"2+2?"},
      {"role":"assistant","content":"<think>\nEasy.\n</think>\n\n4"},{"role":"user","content":"And 3+3?"},
      {"role":"assistant","content":"<think>\n\n</think>\n\n6"}])";
  EXPECT_EQ(Unprinted(kCutsThoughts, messages), Names{"reasoning 2"});
  EXPECT_EQ(Unprinted(kContentAlone, messages), Names{});
}

// A turn is trained with its reasoning in a text of its own; that the turns after it do not show it costs nothing.
TEST(UnprintedFields, ReasoningThatOnlyItsOwnTurnShowsIsNotLeftOut) {
  const std::string messages = R"([{"role":"user","content":"2+2?"},
      {"role":"assistant","content":"4","reasoning_content":"Easy."},{"role":"user","content":"And 3+3?"},
      {"role":"assistant","content":"6","reasoning_content":"Easy, too."}])";
  EXPECT_EQ(Unprinted(kThinksLast, messages), Names{});
  // Nor is it in the text of a turn that does not count.
  std::string context = messages;
  context.insert(context.find(R"("reasoning_content":"Easy.")"), R"("weight":0,)");
  EXPECT_EQ(Unprinted(kContentAlone, context), Names{"reasoning 4"});
}

// The mask is that of the blocks.
TEST(UnprintedFields, ReasoningOutsideOfGenerationBlocksIsLeftOutUnlessAllCounts) {
  const char* blocks =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{{ m.reasoning_content }}"
      "{% generation %}{{ m.content }}<end>{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  const char* messages = R"([{"role":"user","content":"2+2?"},
      {"role":"assistant","content":"4","reasoning_content":"Easy."}])";
  EXPECT_EQ(Unprinted(blocks, messages), Names{"reasoning 2"});
  EXPECT_EQ(Unprinted(blocks, messages, "null", /*all_counts=*/true), Names{});
}

TEST(UnprintedFields, ToolsAndCallsAreFoundByTheNamesOfFunctions) {
  const std::string messages = R"([{"role":"user","content":"q"},
      {"role":"assistant","content":"Wait.","tool_calls":[{"function":{"name":"weather","arguments":{}}}]},
      {"role":"tool","content":"sun","name":"weather","tool_call_id":"x1"},{"role":"assistant","content":"Sunny."}])";
  const std::string tools = R"([{"type":"function","function":{"name":"weather"}}])";
  EXPECT_EQ(Unprinted(kContentAlone, messages, tools), (Names{"tools", "tool_calls 2", "name 3"}));
  // Offering a tool is not calling it.
  EXPECT_EQ(Unprinted(std::string("{{ tools | tojson }}") + kContentAlone, messages, tools), Names{"tool_calls 2"});
}

TEST(UnprintedFields, AnyFieldOfAMessageThatNoTextShowsIsFound) {
  const std::string messages = R"([{"role":"user","content":"Hi","name":"Bob","images":["cat.png"],"n":7,"note":""},
      {"role":"assistant","content":"Hello","function_call":{"name":"look","arguments":"{}"}}])";
  EXPECT_EQ(Unprinted(kContentAlone, messages), (Names{"name 1", "images 1", "function_call 2"}));
  const std::string named =
      "{% for m in messages %}<{{ m.role }} {{ m.name | default('') | upper }}>{{ m.content }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant >{% endif %}";
  EXPECT_EQ(Unprinted(named, messages), (Names{"images 1", "function_call 2"})) << "printed in capitals";
}

TEST(UnprintedFields, ContentThatTheTemplateDropsIsFoundButNotWhatItPrintsInAnotherWay) {
  const std::string messages = R"([{"role":"system","content":"Be brief."},{"role":"user","content":" Say \"hi\" "},
      {"role":"assistant","content":"Hi."},{"role":"user","content":"Behind the last turn."}])";
  const std::string drops =
      "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content | tojson }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(Unprinted(drops, messages), Names{"content 1"});
  const std::string changes =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | upper }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(Unprinted(changes, messages), Names{});
}

TEST(UnprintedFields, WhatTheTemplateDropsIsFoundBesideWhatItPrintsInAnotherWay) {
  const std::string drops =
      "{% for m in messages if m.role != 'system' and not m.skip %}<{{ m.role }}>{{ m.content | upper }}<end>"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const std::string messages = R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi.","id":"x1"},
      {"role":"assistant","content":"Hello."},{"role":"user","content":"Go on."},
      {"role":"assistant","content":"Done."}])";
  EXPECT_EQ(Unprinted(drops, messages), (Names{"content 1", "id 2"}));
  // Also a single message among those of one role.
  OrderedJson skipped = OrderedJson::parse(messages);
  skipped[3]["skip"] = true;
  EXPECT_EQ(Unprinted(drops, skipped.dump()), (Names{"content 1", "id 2", "content 4"}));
  // Of many, as many as are checked.
  for (size_t i = 0; i < 100; ++i) {
    const std::string n = std::to_string(i);
    skipped.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", "again " + n}});
  }
  EXPECT_EQ(Unprinted(drops, skipped.dump()), (Names{"content 1", "id 2", "content 4"}));
}

// After a few searches in vain a field is searched no more; the template itself then says whether it prints it.
TEST(UnprintedFields, EveryMessageOfALongConversationCountsWhoseFieldIsLeftOut) {
  OrderedJson messages = OrderedJson::array();
  Names unprinted;
  const std::string filler(2000, '.');
  for (size_t m = 0; m < 60; ++m) {
    const std::string n = std::to_string(m);
    messages.push_back({{"role", m % 2 ? "assistant" : "user"}, {"content", "c" + n + filler}, {"id", "id-" + n}});
    if (m % 2) messages[m]["reasoning_content"] = "thought " + n;
    unprinted.push_back("id " + std::to_string(m + 1));
  }
  EXPECT_EQ(Unprinted(kThinksLast, messages.dump()), unprinted);
  const std::string prints =
      "{% for m in messages %}<{{ m.role }} {{ m.id | upper }}>{{ m.content }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant {% endif %}";
  for (OrderedJson& message : messages) message.erase("reasoning_content");
  EXPECT_EQ(Unprinted(prints, messages.dump()), Names{});
}

}  // namespace
}  // namespace temper::unprinted_fields_test
