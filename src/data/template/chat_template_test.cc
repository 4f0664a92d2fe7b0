#include "data/template/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/scratch_folder.h"

namespace temper::chat_template_test {
namespace {

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

OrderedJson Parse(const std::string& text) {
  auto json = ParseOrderedJson(text, "test");
  EXPECT_TRUE(json.ok()) << json.status().message();
  return *std::move(json);
}

ChatTemplate Make(const std::string& source) {
  auto t = ChatTemplate::FromSource(source, "test.jinja", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_TRUE(t.ok()) << t.status().message();
  return *std::move(t);
}

const OrderedJson& TwoTurns() {
  static const OrderedJson messages =
      Parse(R"([{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"},
      {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2"}])");
  return messages;
}

// Each text with its spans in brackets: "prompt[answer]...".
std::vector<std::string> Marked(const Result<std::vector<RenderedChat>>& chats) {
  EXPECT_TRUE(chats.ok()) << chats.status().message();
  std::vector<std::string> out;
  if (!chats.ok()) return out;
  for (const RenderedChat& chat : *chats) {
    std::string marked = chat.text;
    for (auto span = chat.assistant.rbegin(); span != chat.assistant.rend(); ++span) {
      marked.insert(span->end, "]");
      marked.insert(span->begin, "[");
    }
    out.push_back(marked);
  }
  return out;
}
std::vector<std::string> Spans(const std::string& source, const OrderedJson& messages = TwoTurns()) {
  return Marked(Make(source).RenderWithSpans(messages, nullptr));
}
std::string SpanError(const std::string& source, const OrderedJson& messages = TwoTurns()) {
  const auto chats = Make(source).RenderWithSpans(messages, nullptr);
  if (chats.ok()) {
    ADD_FAILURE() << Marked(chats)[0];
    return "";
  }
  return chats.status().message();
}
using Texts = std::vector<std::string>;

TEST(ChatTemplate, SupervisesEveryTurnWithItsEndToken) {
  EXPECT_EQ(Spans(kChatMl), Texts{"<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n[a1<|im_end|>]\n"
                                  "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n[a2<|im_end|>]\n"});
}

// The texts of 16 turns, one in the other, have 8 times the bytes of the last, twice.
TEST(ChatTemplate, AllRenderingsOfAConversationHaveALimit) {
  OrderedJson messages = OrderedJson::array();
  for (int i = 0; i < 16; ++i) {
    messages.push_back({{"role", "user"}, {"content", std::string(1 << 10, 'u')}});
    messages.push_back({{"role", "assistant"}, {"content", "a"}});
  }
  for (const auto& [limit, fits] : {std::pair{KiB(512), true}, {KiB(128), false}}) {
    const auto chats = Make(kChatMl).RenderWithSpans(messages, nullptr, {.all_renderings = limit});
    ASSERT_EQ(chats.ok(), fits) << chats.status().message();
    if (fits) continue;
    EXPECT_EQ(chats.status().message(), "a conversation of 32 messages, 16 of them supervised, is too long; split it");
  }
  EXPECT_EQ(ChatOptions().all_renderings, GiB(1)) << "docs/formats/data.md names it";
}

TEST(ChatTemplate, ExcludesTurnsThatTheDataExcludes) {
  const auto expected = Texts{
      "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n"
      "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n[a2<|im_end|>]\n"};
  for (const char* key : {R"("weight": 0)", R"("weight": 0.0)", R"("train": false)"}) {
    OrderedJson messages = TwoTurns();
    messages[1].update(Parse(std::string("{") + key + "}"));
    EXPECT_EQ(Spans(kChatMl, messages), expected);
    EXPECT_EQ(Make(kChatMl).Render(messages, nullptr, false)->find("weight"), std::string::npos);
  }
  OrderedJson messages = TwoTurns();
  messages[1]["weight"] = -2;
  EXPECT_EQ(SpanError(kChatMl, messages), "message 2: 'weight' should be a number of at least 0 but is -2");
}

TEST(ChatTemplate, TrainingKeysDoNotReachTheTemplate) {
  const OrderedJson messages = Parse(R"([{"role": "assistant", "content": "x", "weight": 1, "train": true}])");
  EXPECT_EQ(*Make("{{ messages[0] | tojson }}").Render(messages, nullptr, false),
            R"({"role": "assistant", "content": "x"})");
}

TEST(ChatTemplate, CutsTheTextAfterTheLastSupervisedTurn) {
  OrderedJson messages = TwoTurns();
  messages[3]["weight"] = 0;
  EXPECT_EQ(Spans(kChatMl, messages), Texts{"<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n[a1<|im_end|>]\n"});
}

TEST(ChatTemplate, RefusesAConversationWithNothingToTrainOn) {
  OrderedJson messages = TwoTurns();
  messages[1]["weight"] = messages[3]["weight"] = 0;
  EXPECT_NE(SpanError(kChatMl, messages).find("no assistant message to train on"), std::string::npos);
  EXPECT_NE(SpanError(kChatMl, OrderedJson::array()).find("no assistant message"), std::string::npos);
}

// Qwen3 and DeepSeek: the thoughts of earlier turns are not printed again.
constexpr const char* kDropsEarlierThoughts =
    "{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last else m.content.split('</think>')[-1] }}<end>\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(ChatTemplate, SplitsAConversationWhoseEarlierTurnsAreRewritten) {
  OrderedJson messages = TwoTurns();
  messages[1]["content"] = "<think>t1</think>a1";
  messages[3]["content"] = "<think>t2</think>a2";
  EXPECT_EQ(Spans(kDropsEarlierThoughts, messages),
            (Texts{"<user>q1<end>\n<assistant>[<think>t1</think>a1<end>]\n",
                   "<user>q1<end>\n<assistant>a1<end>\n<user>q2<end>\n<assistant>[<think>t2</think>a2<end>]\n"}));
}

TEST(ChatTemplate, KeepsOneTextWhereNothingWasRewritten) {
  OrderedJson messages = TwoTurns();
  messages[3]["content"] = "<think>t2</think>a2";
  EXPECT_EQ(Spans(kDropsEarlierThoughts, messages),
            Texts{"<user>q1<end>\n<assistant>[a1<end>]\n<user>q2<end>\n<assistant>[<think>t2</think>a2<end>]\n"});
}

TEST(ChatTemplate, AcceptsAnEosAtTheEndOfTheConversationOnly) {  // Phi-3
  EXPECT_EQ(Spans("{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
                  "{% if add_generation_prompt %}<assistant>{% else %}{{ eos_token }}{% endif %}"),
            Texts{"<user>q1<end>\n<assistant>[a1<end>]\n<user>q2<end>\n<assistant>[a2<end>\n</s>]"});
}

TEST(ChatTemplate, AGenerationPromptThatTurnsLackIsNotPartOfTheText) {  // DeepSeek-R1
  EXPECT_EQ(
      Spans("{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}"
            "{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant><think>\n{% endif %}"),
      Texts{"<s><user>q1<assistant>[a1</s>]<user>q2<assistant>[a2</s>]"});
}

TEST(ChatTemplate, ContentEqualToTheGenerationPromptIsStillFullySupervised) {
  const OrderedJson messages =
      Parse(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "<thing>"}])");
  EXPECT_EQ(Spans("{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
                  "{% if add_generation_prompt %}<assistant><think>\n{% endif %}",
                  messages),
            Texts{"<user>q<end><assistant>[<thing><end>]"});
}

TEST(ChatTemplate, ASystemMessageThatMovesWithTheLastTurnStaysInThePrompt) {  // Mistral Nemo
  const OrderedJson messages = Parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"},
      {"role": "assistant", "content": "a2"}])");
  EXPECT_EQ(Spans("{% set s = messages[0].content %}{{ bos_token }}{% for m in messages[1:] %}{% if m.role == 'user' %}"
                  "[INST]{% if loop.last %}{{ s + ' ' }}{% endif %}{{ m.content }}[/INST]{% else %}"
                  "{{ m.content + eos_token }}{% endif %}{% endfor %}",
                  messages),
            (Texts{"<s>[INST]S q1[/INST][a1</s>]", "<s>[INST]q1[/INST]a1</s>[INST]S q2[/INST][a2</s>]"}));
}

// As Mistral Nemo's: the system message moves into the last turn, and a message with calls prints nothing else.
constexpr const char* kMovesTheSystemMessage =
    "{% set s = messages[0].content %}{{ bos_token }}{% for m in messages[1:] %}{% if m.role == 'user' %}"
    "[INST]{% if loop.last %}{{ s + ' ' }}{% endif %}{{ m.content }}[/INST]{% elif m.tool_calls %}"
    "[CALLS]{{ m.tool_calls | tojson }}{{ eos_token }}{% elif m.role == 'tool' %}[RESULTS]{{ m.content }}[/RESULTS]"
    "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}";

TEST(ChatTemplate, ACallWithoutContentFollowsThePromptThatHasTheMovedSystemMessage) {
  const OrderedJson messages = Parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "q1"},
      {"role": "assistant", "content": "", "tool_calls": [1]}, {"role": "tool", "content": "r"},
      {"role": "assistant", "content": "a1"}])");
  EXPECT_EQ(
      Spans(kMovesTheSystemMessage, messages),
      (Texts{"<s>[INST]S q1[/INST][[CALLS][1]</s>]", "<s>[INST]q1[/INST][CALLS][1]</s>[RESULTS]r[/RESULTS][a1</s>]"}));
  // A message may call and say something of which the template prints nothing.
  OrderedJson both = messages;
  both[2]["content"] = "Let me look.";
  EXPECT_EQ(Spans(kMovesTheSystemMessage, both), Spans(kMovesTheSystemMessage, messages));
}

// As Mistral's of version 3: a space is ahead of what is said, but not of calls; here not of reasoning either.
TEST(ChatTemplate, WhatFollowsAMovedSystemMessageMayLackTheSpaceAheadOfContent) {
  constexpr const char* kSpace =
      "{% set s = messages[0].content %}{{ bos_token }}{% for m in messages[1:] %}{% if m.role == 'user' %}"
      "[INST] {% if loop.last %}{{ s + ' ' }}{% endif %}{{ m.content }}[/INST]{% elif m.tool_calls %}"
      "[CALLS] {{ m.tool_calls | tojson }}{{ eos_token }}{% elif m.role == 'tool' %}[RESULTS] {{ m.content }}[/RESULTS]"
      "{% else %}{% if m.reasoning %}[THINK]{{ m.reasoning }}[/THINK]{% endif %}"
      "{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}";
  const OrderedJson calls = Parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "q1"},
      {"role": "assistant", "content": "", "tool_calls": [1]}, {"role": "tool", "content": "r"},
      {"role": "assistant", "content": "a1"}])");
  EXPECT_EQ(Spans(kSpace, calls), (Texts{"<s>[INST] S q1[/INST][[CALLS] [1]</s>]",
                                         "<s>[INST] q1[/INST][CALLS] [1]</s>[RESULTS] r[/RESULTS][ a1</s>]"}));
  const OrderedJson thinks = Parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "q"},
      {"role": "assistant", "content": "4", "reasoning": "Easy."}])");
  EXPECT_EQ(Spans(kSpace, thinks), Texts{"<s>[INST] S q[/INST][[THINK]Easy.[/THINK] 4</s>]"});
}

TEST(ChatTemplate, ACallWithoutContentBeginsBehindAHeaderThatThePromptDoesNotEndWith) {
  const OrderedJson messages = Parse(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "tool_calls": [1]}, {"role": "tool", "content": "r"},
      {"role": "assistant", "content": "a"}])");
  EXPECT_EQ(
      Spans("{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}<call>{{ m.tool_calls | tojson }}{% else %}"
            "{{ m.content }}{% endif %}<end>{% endfor %}"
            "{% if add_generation_prompt %}<assistant><think>\n{% endif %}",
            messages),
      Texts{"<user>q<end><assistant>[<call>[1]<end>]<tool>r<end><assistant>[a<end>]"});
}

// The template rejects a turn without calls here, so the turn is compared with one that has them.
TEST(ChatTemplate, ATurnThatMustCallIsFoundByItsContent) {
  const OrderedJson messages = Parse(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "tool_calls": [1]}])");
  EXPECT_EQ(
      Spans("{% for m in messages %}{% if m.role == 'assistant' and not m.tool_calls %}{{ raise_exception('no') }}"
            "{% endif %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<end>"
            "{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}",
            messages),
      Texts{"<user>q<end><assistant>[a[1]<end>]"});
}

// As Qwen 3's with enable_thinking false: the prompt closes the block that its turn fills.
TEST(ChatTemplate, ReasoningCountsWhereThePromptDoesNotBeginItsTurn) {
  const std::string prints =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}<think>\n{{ m.reasoning_content "
      "}}\n</think>\n"
      "{% endif %}{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant>";
  const OrderedJson messages = Parse(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "4", "reasoning_content": "Easy."}])");
  EXPECT_EQ(Spans(prints + "<think>\n\n</think>\n{% endif %}", messages),
            Texts{"<user>q<end><assistant><think>\n[Easy.\n</think>\n4<end>]"});
  EXPECT_EQ(Spans(prints + "<think>\n{% endif %}", messages),
            Texts{"<user>q<end><assistant><think>\n[Easy.\n</think>\n4<end>]"});
  EXPECT_EQ(Spans(prints + "{% endif %}", messages),
            Texts{"<user>q<end><assistant>[<think>\nEasy.\n</think>\n4<end>]"});
}

// As GLM-4.7's with enable_thinking false: the prompt closes reasoning, with a marker that begins as the one that opens
// it.
TEST(ChatTemplate, ATurnBeginsWithAWholeMarkerOrWord) {
  const OrderedJson messages = Parse(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "4", "reasoning_content": "Easy."}])");
  const auto with = [](const std::string& thought, const std::string& none) {
    return "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}" + thought +
           "{% elif m.role == 'assistant' %}" + none +
           "{% endif %}{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant>" + none +
           "{% endif %}";
  };
  EXPECT_EQ(Spans(with("<think>{{ m.reasoning_content }}</think>", "</think>"), messages),
            Texts{"<user>q<end><assistant>[<think>Easy.</think>4<end>]"});
  EXPECT_EQ(Spans(with("Reasoning: {{ m.reasoning_content }} Response: ", "Response: "), messages),
            Texts{"<user>q<end><assistant>[Reasoning: Easy. Response: 4<end>]"});
}

// As Command R7B's: every prompt has empty reasoning; the turn has a marker in its place, which no prompt has.
TEST(ChatTemplate, AMarkerAheadOfEveryAnswerThatThePromptLacksCounts) {
  const std::string turns =
      "{% for m in messages %}<{{ m.role }}>{{ '<says>' if m.role == 'assistant' }}{{ m.content + eos_token }}{% "
      "endfor %}";
  EXPECT_EQ(Spans(turns + "{% if add_generation_prompt %}<assistant><think></think>{% endif %}"),
            Texts{"<user>q1</s><assistant>[<says>a1</s>]<user>q2</s><assistant>[<says>a2</s>]"});
  // The header is printed behind every conversation.
  EXPECT_EQ(Spans(turns + "<assistant><think></think>"),
            Texts{"<user>q1</s><assistant>[<says>a1</s>]<user>q2</s><assistant>[<says>a2</s>]"});
}

// As gpt-oss's: once an answer follows, the thoughts ahead of its calls are gone; an answer has a channel.
TEST(ChatTemplate, ATurnThatRewritesItsHistoryKeepsAllThatItsHeaderIsFollowedBy) {
  constexpr const char* kChannels =
      "{% for m in messages %}{% if m.role != 'assistant' %}<{{ m.role }}>{{ m.content }}<end>{% else %}"
      "{% if m.thinking and not messages[loop.index:] | selectattr('role', 'equalto', 'assistant') | list %}"
      "<assistant>#thought:{{ m.thinking }}<end>{% endif %}<assistant>"
      "{% if m.tool_calls %}#call:{{ m.tool_calls[0] }}<call>{% else %}#final:{{ m.content }}<end>{% endif %}"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  OrderedJson messages = Parse(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "thinking": "T1", "tool_calls": ["f"]},
      {"role": "tool", "content": "<assistant>"}, {"role": "assistant", "content": "a"}])");
  const std::string head = "<user>q<end><assistant>[#thought:T1<end><assistant>#call:f<call>]<tool><assistant><end>";
  EXPECT_EQ(Spans(kChannels, messages), Texts{head + "<assistant>[#final:a<end>]"});
  messages[3]["thinking"] = "T2";
  EXPECT_EQ(Spans(kChannels, messages), Texts{head + "<assistant>[#thought:T2<end><assistant>#final:a<end>]"});
}

TEST(ChatTemplate, ReasoningWithinTheContentCountsWhereItsBlockIsPrintedAnew) {
  const OrderedJson messages = Parse(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "<think>Easy.</think>4"}])");
  EXPECT_EQ(Spans("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% if '</think>' in m.content %}"
                  "<think>{{ m.content.split('</think>')[0].split('<think>')[-1] }}</think>"
                  "{{ m.content.split('</think>')[-1] }}{% else %}<think></think>{{ m.content }}{% endif %}{% else %}"
                  "{{ m.content }}{% endif %}<end>{% endfor %}"
                  "{% if add_generation_prompt %}<assistant><think></think>{% endif %}",
                  messages),
            Texts{"<user>q<end><assistant><think>[Easy.</think>4<end>]"});
}

// The system message says how the last turn is: its text is not the turn's.
TEST(ChatTemplate, TextAheadOfTheTurnThatDependsOnItsReasoningDoesNotCount) {
  const OrderedJson messages = Parse(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "4", "reasoning_content": "Easy."}])");
  EXPECT_EQ(Spans("{{ 'deep ' if messages[-1].reasoning_content else 'quick ' }}{% for m in messages %}<{{ m.role }}>"
                  "{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}",
                  messages),
            Texts{"quick <user>q<end><assistant><think>[4<end>]"});
}

TEST(ChatTemplate, UsesGenerationBlocks) {
  EXPECT_EQ(Spans("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}."
                  "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"),
            Texts{"<user>q1<assistant>[a1.]<user>q2<assistant>[a2.]"});
}

TEST(ChatTemplate, GenerationBlocksFollowTheirMessages) {
  OrderedJson messages = TwoTurns();
  messages[1]["train"] = false;
  // Two blocks per turn, and the first turn's excluded.
  EXPECT_EQ(Spans("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
                  "{% endgeneration %}|{% generation %}<end>{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
                  "{% endfor %}",
                  messages),
            Texts{"<user>q1<assistant>a1|<end><user>q2<assistant>[a2]|[<end>]"});
}

// As in trainers' variants of Phi-3: the eos_token of a finished conversation is in a block of its own.
constexpr const char* kEndsInABlock =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<end>\n' }}"
    "{% endgeneration %}{% else %}{{ m.content + '<end>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% else %}{% generation %}{{ eos_token }}{% endgeneration %}{% endif %}";

TEST(ChatTemplate, ABlockThatEndsTheConversationBelongsToItsLastTurn) {
  OrderedJson messages = TwoTurns();
  EXPECT_EQ(Spans(kEndsInABlock, messages),
            Texts{"<user>q1<end>\n<assistant>[a1<end>\n]<user>q2<end>\n<assistant>[a2<end>\n][</s>]"});
  messages[1]["train"] = false;
  EXPECT_EQ(Spans(kEndsInABlock, messages),
            Texts{"<user>q1<end>\n<assistant>a1<end>\n<user>q2<end>\n<assistant>[a2<end>\n][</s>]"});
  messages = TwoTurns();
  messages.push_back({{"role", "assistant"}, {"content", "a3"}});
  EXPECT_EQ(Spans(kEndsInABlock, messages),
            Texts{"<user>q1<end>\n<assistant>[a1<end>\n]<user>q2<end>\n<assistant>[a2<end>\n]<assistant>[a3<end>\n]"
                  "[</s>]"});
}

// As in gpt-oss: within its block a turn ends with the eos_token only where it is the last one.
TEST(ChatTemplate, ABlockThatEndsInAnotherWayInALongerConversationIsWhole) {
  EXPECT_EQ(Spans("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
                  "{% if loop.last %}{{ eos_token }}{% else %}<end>{% endif %}{% endgeneration %}{% else %}"
                  "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"),
            Texts{"<user>q1<assistant>[a1<end>]<user>q2<assistant>[a2</s>]"});
}

TEST(ChatTemplate, AGenerationBlockInAMacroIsFoundByItsPrompt) {
  EXPECT_EQ(Spans("{% macro turn(m) %}{% generation %}{{ m.content }}<end>{% endgeneration %}{% endmacro %}"
                  "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{{ turn(m) }}{% else %}"
                  "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"),
            Texts{"<user>q1<assistant>[a1<end>]<user>q2<assistant>[a2<end>]"});
}

TEST(ChatTemplate, ToolCallsAreSupervised) {
  const OrderedJson messages = Parse(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
      {"role": "tool", "content": "r"}, {"role": "assistant", "content": "a"}])");
  EXPECT_EQ(Spans("{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}{% for c in m.tool_calls %}"
                  "{{ c.function | tojson }}{% endfor %}<end>{% endfor %}"
                  "{% if add_generation_prompt %}<assistant>{% endif %}",
                  messages),
            Texts{"<user>q<end><assistant>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}<end>]<tool>r<end>"
                  "<assistant>[a<end>]"});
}

TEST(ChatTemplate, AnAssistantMayBegin) {
  const OrderedJson messages = Parse(R"([{"role": "assistant", "content": "hi"}, {"role": "user", "content": "q"},
                                         {"role": "assistant", "content": "a"}])");
  // With no message at all this template fails, so there is no prompt to compare with.
  EXPECT_EQ(Spans("{{ '(' + messages[0].role + ')' }}{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>"
                  "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
                  messages),
            Texts{"(assistant)<assistant>[hi<end>]<user>q<end><assistant>[a<end>]"});
}

TEST(ChatTemplate, RefusesATemplateThatHidesTheTurn) {
  EXPECT_NE(SpanError("{{ messages | length }}").find("message 2"), std::string::npos);
  EXPECT_NE(SpanError("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}").find("message 2"),
            std::string::npos);
  // No text before the turn: all of it would be supervised.
  const OrderedJson greeting = Parse(R"([{"role": "assistant", "content": "hi"}])");
  EXPECT_NE(SpanError("{{ messages[0].content }}", greeting).find("message 1"), std::string::npos);
}

TEST(ChatTemplate, PassesOnErrorsThatTheTemplateRaises) {
  EXPECT_EQ(SpanError("{{ raise_exception('roles must alternate') }}"),
            "test.jinja, line 1: the template rejects this conversation: roles must alternate");
}

TEST(ChatTemplate, RefusesMalformedMessages) {
  EXPECT_EQ(SpanError(kChatMl, Parse("{}")), "the messages should be a list but are object");
  EXPECT_EQ(SpanError(kChatMl, Parse("[1]")), "message 1 should be an object but is number");
  EXPECT_EQ(SpanError(kChatMl, Parse(R"([{"content": "x"}])")),
            "message 1 has no 'role' (one of system, user, assistant, tool)");
  EXPECT_FALSE(Make(kChatMl).Render(TwoTurns(), Parse("{}"), false).ok());
}

TEST(ChatTemplate, GivesTheTemplateItsVariables) {
  const ChatTemplate t = Make(
      "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ tools is none }}{{ documents is none }}"
      "{{ add_generation_prompt }}{{ enable_thinking }}{{ strftime_now('%Y') }}");
  const OrderedJson variables = {{"enable_thinking", false}, {"eos_token", "E"}};
  ChatOptions options;
  options.today.tm_year = 124;
  options.variables = &variables;
  EXPECT_EQ(*t.Render(TwoTurns(), nullptr, true, options), "<s>EFalseTrueTrueTrueFalse2024");
  EXPECT_EQ(*t.Render(TwoTurns(), OrderedJson::array(), false), "<s></s>FalseTrueTrueFalse1970");
}

TEST(ChatTemplate, ReasoningIsFoundUnderEachOfItsNames) {
  const OrderedJson messages = Parse(R"([{"role": "assistant", "content": "x", "reasoning": "r"}])");
  EXPECT_EQ(*Make("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}").Render(messages, nullptr, false),
            "rr");
}

class ChatTemplateFolder : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(PosixEnv().CreateFolders(folder_ / "additional_chat_templates").ok()); }
  void Write(const std::string& name, std::string_view text) {
    ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), folder_ / name, text).ok());
  }
  std::string Rendered(const OrderedJson& tools = nullptr) {
    auto t = ChatTemplate::Load(PosixEnv(), folder_.path());
    if (!t.ok()) return t.status().message();
    if (!*t) return "(none)";
    return *(*t)->Render(TwoTurns(), tools, false);
  }
  const ScratchFolder folder_;
};

TEST_F(ChatTemplateFolder, HasNoneIfNoFileNamesOne) {
  EXPECT_EQ(Rendered(), "(none)");
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": null})");
  EXPECT_EQ(Rendered(), "(none)");
}

TEST_F(ChatTemplateFolder, ReadsEveryPlaceInTransformersOrder) {
  Write("chat_template.json", R"({"chat_template": "from json {{ bos_token }}"})");
  EXPECT_EQ(Rendered(), "from json ");
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
                                     "chat_template": "from config {{ bos_token }}{{ eos_token }}"})");
  EXPECT_EQ(Rendered(), "from config <s></s>");
  Write("chat_template.jinja", "from jinja {{ bos_token }}{{ eos_token }}\n");
  EXPECT_EQ(Rendered(), "from jinja <s></s>");
}

TEST_F(ChatTemplateFolder, FillsMissingTokensFromTheSpecialTokensMap) {
  Write("special_tokens_map.json", R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>", "pad_token": "<p>"})");
  Write("tokenizer_config.json", R"({"bos_token": null, "eos_token": "</s>",
                                     "chat_template": "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}"})");
  EXPECT_EQ(Rendered(), "|</s>|<p>");
}

TEST_F(ChatTemplateFolder, ChoosesTheToolTemplateIfThereAreTools) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
                                                       {"name": "tool_use", "template": "tools {{ tools | length }}"}]})");
  EXPECT_EQ(Rendered(), "plain");
  EXPECT_EQ(Rendered(OrderedJson::array()), "plain");
  EXPECT_EQ(Rendered(Parse("[{}, {}]")), "tools 2");
  Write("chat_template.jinja", "main file");
  Write("additional_chat_templates/tool_use.jinja", "tool file");
  EXPECT_EQ(Rendered(), "main file");
  EXPECT_EQ(Rendered(Parse("[{}]")), "tool file");
}

TEST_F(ChatTemplateFolder, SaysWhichFileIsWrong) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_NE(Rendered().find("none is named 'default'"), std::string::npos);
  Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_NE(Rendered().find("tokenizer_config.json: 'chat_template' should be"), std::string::npos);
  Write("tokenizer_config.json", "{");
  EXPECT_NE(Rendered().find("tokenizer_config.json"), std::string::npos);
  Write("tokenizer_config.json", R"({"chat_template": "a\n{% if %}"})");
  EXPECT_NE(Rendered().find("tokenizer_config.json, chat_template, line 2"), std::string::npos);
  Write("chat_template.jinja", "{{ x");
  EXPECT_NE(Rendered().find("chat_template.jinja, line 1"), std::string::npos);
}

// For every real template: each span follows the exact prompt of generation, or begins at its content.
TEST(ChatTemplate, SpansOfRealTemplatesAreTheAssistantsText) {
  const char* root = std::getenv("TEMPER_TEST_DATA");
  if (!root || !PosixEnv().IsFolder(JoinPath(root, "chat_templates"))) {
    GTEST_SKIP() << "no chat_templates in TEMPER_TEST_DATA";
  }
  const std::string folder = JoinPath(root, "chat_templates");
  const OrderedJson messages = Parse(R"([{"role": "user", "content": "Question one?"},
      {"role": "assistant", "content": "Answer one."}, {"role": "user", "content": "Question two?"},
      {"role": "assistant", "content": "<think>\nReason two.\n</think>\n\nAnswer two."}])");
  int templates = 0;
  const auto names = PosixEnv().List(folder);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    if (!name.ends_with(".jinja")) continue;
    ++templates;
    SCOPED_TRACE(name);
    auto t = ChatTemplate::FromSource(*ReadTextFile(PosixEnv(), JoinPath(folder, name)), name,
                                      {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    ASSERT_TRUE(t.ok()) << t.status().message();
    // Templates only for tools refuse a conversation without any.
    const OrderedJson tools = name.find("tool_use") == name.npos ? OrderedJson() : Parse(R"([{"type": "function",
        "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}])");
    const auto chats = t->RenderWithSpans(messages, tools);
    ASSERT_TRUE(chats.ok()) << chats.status().message();
    std::vector<std::string> said;
    for (const RenderedChat& chat : *chats) {
      for (const TextSpan& span : chat.assistant) said.push_back(chat.text.substr(span.begin, span.end - span.begin));
    }
    ASSERT_EQ(said.size(), 2u);
    EXPECT_NE(said[0].find("Answer one."), std::string::npos) << said[0];
    EXPECT_NE(said[1].find("Answer two."), std::string::npos) << said[1];
    for (const std::string& text : said) {
      EXPECT_EQ(text.find("Question"), std::string::npos) << text;
      EXPECT_FALSE(text.ends_with('\n')) << text;
      EXPECT_TRUE(text.ends_with('>')) << text << ": no end-of-turn token";
    }
  }
  EXPECT_GT(templates, 0);
}

}  // namespace
}  // namespace temper::chat_template_test
