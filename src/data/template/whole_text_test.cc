// ChatOptions::one_text: a conversation as one text, whatever its template prints of earlier turns.
#include "data/template/whole_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/text_parts.h"
#include "data/template/chat_template.h"

namespace temper::whole_text_test {
namespace {

using Texts = std::vector<std::string>;

OrderedJson Messages(const char* text) {
  return OrderedJson::parse(text);
}

ChatTemplate Make(const std::string& source) {
  auto made = ChatTemplate::FromSource(source, "test.jinja", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *std::move(made);
}

// The texts with their spans in brackets, and what is beyond them behind a bar.
Texts Marked(const ChatTemplate& chat_template, const OrderedJson& messages, ChatOptions options) {
  const auto chats = chat_template.RenderWithSpans(messages, nullptr, options);
  EXPECT_TRUE(chats.ok()) << chats.status().message();
  Texts out;
  for (const RenderedChat& chat : chats.ok() ? *chats : std::vector<RenderedChat>()) {
    std::string marked = chat.text;
    for (auto span = chat.assistant.rbegin(); span != chat.assistant.rend(); ++span) {
      marked.insert(span->end, "]");
      marked.insert(span->begin, "[");
    }
    EXPECT_EQ(chat.messages.size(), chat.assistant.size());
    out.push_back(chat.beyond.empty() ? marked : marked + "|" + chat.beyond);
  }
  return out;
}
Texts One(const std::string& source, const OrderedJson& messages) {
  return Marked(Make(source), messages, {.one_text = true});
}

// As Qwen 3's and QwQ's: the thoughts of earlier turns are not printed again.
constexpr const char* kDropsEarlierThoughts =
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content and loop.last %}({{ m.reasoning_content }}){% "
    "endif %}"
    "{{ m.content }}{% for c in m.tool_calls %}<call>{{ c }}{% endfor %}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(WholeText, EarlierTurnsCountAsTheTemplatePrintsThemInTheWholeConversation) {
  const OrderedJson messages = Messages(R"([{"role": "user", "content": "q1"},
      {"role": "assistant", "content": "", "reasoning_content": "t1", "tool_calls": ["f"]}, {"role": "tool", "content": "r"},
      {"role": "assistant", "content": "a2", "reasoning_content": "t2"}, {"role": "user", "content": "q3"},
      {"role": "assistant", "content": "a3", "reasoning_content": "t3"}, {"role": "user", "content": "bye"}])");
  EXPECT_EQ(Marked(Make(kDropsEarlierThoughts), messages, {}).size(), 3u);
  EXPECT_EQ(One(kDropsEarlierThoughts, messages),
            Texts{"<user>q1<end>\n<assistant>[<call>f<end>]\n<tool>r<end>\n<assistant>[a2<end>]\n<user>q3<end>\n"
                  "<assistant>[(t3)a3<end>]\n"});
  OrderedJson without_second = messages;
  without_second[3]["train"] = false;
  EXPECT_EQ(One(kDropsEarlierThoughts, without_second),
            Texts{"<user>q1<end>\n<assistant>[<call>f<end>]\n<tool>r<end>\n<assistant>a2<end>\n<user>q3<end>\n"
                  "<assistant>[(t3)a3<end>]\n"});
}

// As gpt-oss's: an earlier answer has no thoughts, but its channel, which the model had to write.
TEST(WholeText, AMarkerAheadOfAnEarlierAnswerCounts) {
  constexpr const char* kChannels =
      "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content and loop.last %}#thought:{{ m.reasoning_content "
      "}}"
      "<end><assistant>{% endif %}{{ '#final:' if m.role == 'assistant' }}{{ m.content }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  const OrderedJson messages = Messages(R"([{"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning_content": "t1"}, {"role": "user", "content": "q2"},
      {"role": "assistant", "content": "a2", "reasoning_content": "t2"}])");
  EXPECT_EQ(One(kChannels, messages), Texts{"<user>q1<end><assistant>[#final:a1<end>]<user>q2<end><assistant>[#thought:"
                                            "t2<end><assistant>#final:a2<end>]"});
}

TEST(WholeText, ATemplateThatKeepsEarlierTurnsGivesTheSameText) {
  const char* source =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  const OrderedJson messages = Messages(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])");
  EXPECT_EQ(One(source, messages), Marked(Make(source), messages, {}));
}

// The prompt has a <think> that no turn of the history has.
TEST(WholeText, ATurnIsFoundWhereItsPromptDoesNotStand) {
  const std::string source =
      std::string(kDropsEarlierThoughts).substr(0, std::string(kDropsEarlierThoughts).rfind("{% if")) +
      "{% if add_generation_prompt %}<assistant><think>{% endif %}";
  EXPECT_EQ(One(source, Messages(R"([{"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning_content": "t1"}, {"role": "user", "content": "q2"},
      {"role": "assistant", "content": "a2", "reasoning_content": "t2"}])")),
            Texts{"<user>q1<end>\n<assistant>[a1<end>]\n<user>q2<end>\n<assistant>[(t2)a2<end>]\n"});
}

// As Mistral's: the last turn's text is its prompt and what it says.
TEST(WholeText, AMovedSystemMessageStaysWithTheLastTurn) {
  EXPECT_EQ(One("{% set s = messages[0].content %}{{ bos_token }}{% for m in messages[1:] %}{% if m.role == 'user' %}"
                "[INST]{% if loop.last %}{{ s + ' ' }}{% endif %}{{ m.content }}[/INST]"
                "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
                Messages(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2"}])")),
            Texts{"<s>[INST]q1[/INST][a1</s>][INST]S q2[/INST][a2</s>]"});
}

TEST(WholeText, GenerationBlocksOfTheWholeTextCount) {
  EXPECT_EQ(
      One("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
          "{% if m.reasoning_content and loop.last %}{% generation %}({{ m.reasoning_content }}){% endgeneration %}"
          "{% endif %}{% generation %}{{ m.content }}<end>{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n"
          "{% endfor %}",
          Messages(R"([{"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning_content": "t1"}, {"role": "user", "content": "q2"},
      {"role": "assistant", "content": "a2", "reasoning_content": "t2"}])")),
      Texts{"<user>q1<assistant>[a1<end>]<user>q2<assistant>[(t2)][a2<end>]"});
}

// A turn of which nothing is printed has no span.
TEST(WholeText, OnlyWhatIsPrintedCounts) {
  EXPECT_EQ(One("{% for m in messages %}{% if m.role == 'user' or loop.last %}<{{ m.role }}>{{ m.content }}<end>\n"
                "{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
                Messages(R"([{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"},
      {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2"}])")),
            Texts{"<user>q1<end>\n<user>q2<end>\n<assistant>[a2<end>]\n"});
}

// The text is that of the whole conversation, not of the last turn that is used.
TEST(WholeText, TurnsBeyondWhatIsUsedAreLeftOutOfTheWholeText) {
  const OrderedJson messages = Messages(R"([{"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning_content": "t1"}, {"role": "user", "content": "q2"},
      {"role": "assistant", "content": "a2", "reasoning_content": "t2"}, {"role": "user", "content": "q3"},
      {"role": "assistant", "content": "a3", "reasoning_content": "t3"}])");
  ChatOptions options{.one_text = true};
  options.is_beyond = [](std::string_view prompt) { return prompt.find("q3") != prompt.npos; };
  EXPECT_EQ(Marked(Make(kDropsEarlierThoughts), messages, options),
            Texts{"<user>q1<end>\n<assistant>[a1<end>]\n<user>q2<end>\n<assistant>[a2<end>]|\n<user>q3<end>\n"
                  "<assistant>(t3)a3<end>\n"});
}

// Every real template makes one text, which is a beginning of what it prints for the whole conversation, and each turn
// counts in it with what ends it.
TEST(WholeText, RealTemplatesPrintTheWholeConversationOnce) {
  const char* root = std::getenv("TEMPER_TEST_DATA");
  const std::string folder = root ? JoinPath(root, "chat_templates") : "";
  if (!root || !PosixEnv().IsFolder(folder)) GTEST_SKIP() << "no chat_templates in TEMPER_TEST_DATA";
  const OrderedJson messages = Messages(R"([{"role": "user", "content": "Question one?"},
      {"role": "assistant", "content": "<think>\nReason one.\n</think>\n\nAnswer one."},
      {"role": "user", "content": "Question two?"},
      {"role": "assistant", "content": "Answer two.", "reasoning_content": "Reason two."},
      {"role": "user", "content": "Question three?"},
      {"role": "assistant", "content": "<think>\nReason three.\n</think>\n\nAnswer three."}])");
  int templates = 0, split = 0;
  const auto names = PosixEnv().List(folder);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    if (!name.ends_with(".jinja") || name.find("tool_use") != name.npos) continue;
    ++templates;
    SCOPED_TRACE(name);
    const ChatTemplate made = Make(*ReadTextFile(PosixEnv(), JoinPath(folder, name)));
    const auto all = made.RenderWithSpans(messages, nullptr),
               one = made.RenderWithSpans(messages, nullptr, {.one_text = true});
    ASSERT_TRUE(all.ok() && one.ok()) << one.status().message();
    split += all->size() > 1;
    ASSERT_EQ(one->size(), 1u);
    const RenderedChat& chat = one->front();
    EXPECT_TRUE(made.Render(messages, nullptr, false)->starts_with(Stripped(chat.text)));
    ASSERT_EQ(chat.assistant.size(), 3u);
    const char* answers[] = {"Answer one.", "Answer two.", "Answer three."};
    for (size_t i = 0; i < 3; ++i) {
      const TextSpan& span = chat.assistant[i];
      const std::string text = chat.text.substr(span.begin, span.end - span.begin);
      EXPECT_NE(text.find(answers[i]), text.npos) << text;
      EXPECT_EQ(text.find("Question"), text.npos) << text;
      EXPECT_TRUE(text.ends_with('>')) << text << ": no end-of-turn token";
    }
  }
  EXPECT_GT(templates, 5);
  EXPECT_GT(split, 0) << "Qwen 3's template drops reasoning";
}

}  // namespace
}  // namespace temper::whole_text_test
