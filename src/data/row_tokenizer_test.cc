#include "data/row_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/fake_tokenizer.h"

namespace temper::row_tokenizer_test {
namespace {

using Ids = std::vector<int32_t>;
using Flags = std::vector<uint8_t>;
constexpr int32_t kBos = FakeTokenizer::kBos, kEos = FakeTokenizer::kEos, kImEnd = FakeTokenizer::kImEnd;

ChatTemplate Template(const std::string& source) {
  auto chat = ChatTemplate::FromSource(source, "test template", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  TEMPER_CHECK(chat.ok()) << chat.status().message();
  return *std::move(chat);
}

ChatTemplate ChatMl() {
  return Template(
      "{% for m in messages %}{% if m.role == 'evil' %}{{ raise_exception('no evil') }}{% endif %}"
      "<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}");
}

Record Prompt(std::string prompt, std::string completion) {
  Record r{.kind = RecordKind::kPrompt, .where = "f line 1"};
  r.prompt = std::move(prompt);
  r.completion = std::move(completion);
  return r;
}

Record Text(std::string text) {
  Record r{.kind = RecordKind::kText, .where = "f line 1"};
  r.text = std::move(text);
  return r;
}

Record Chat(const std::string& messages) {
  Record r{.kind = RecordKind::kMessages, .where = "f line 1"};
  r.messages = OrderedJson::parse(messages);
  return r;
}

struct Outcome {
  Status status;
  std::vector<Sample> samples;
  DataStatistics statistics;
};

Outcome RunRow(const Tokenizer& tokenizer, const Record& record, TokenizeOptions options = {},
               const ChatTemplate* chat = nullptr) {
  Outcome out;
  const auto rows = RowTokenizer::Create(tokenizer, chat, options);
  out.status = rows.status();
  if (rows.ok()) out.status = (*rows)->Tokenize(record, out.samples, out.statistics);
  for (const Sample& sample : out.samples) {
    EXPECT_EQ(sample.tokens.size(), sample.supervised.size());
    EXPECT_EQ(sample.supervised[0], 0);
  }
  return out;
}

// Text of the supervised tokens, and of all.
std::string Supervised(const Tokenizer& tokenizer, const Sample& sample) {
  Ids ids;
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (sample.supervised[i]) ids.push_back(sample.tokens[i]);
  }
  return tokenizer.Decode(ids, false);
}
std::string Whole(const Tokenizer& tokenizer, const Sample& sample) {
  return tokenizer.Decode(sample.tokens, false);
}

TEST(RowTokenizer, SupervisesTheCompletionAndEosOnly) {
  const FakeTokenizer tokenizer;
  const Outcome out = RunRow(tokenizer, Prompt("ab", "cd"));
  ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
  EXPECT_EQ(out.samples[0].tokens, (Ids{kBos, 'a', 'b', 'c', 'd', kEos}));
  EXPECT_EQ(out.samples[0].supervised, (Flags{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(out.statistics.tokens, 6);
  EXPECT_EQ(out.statistics.supervised, 3);
  EXPECT_EQ(out.statistics.stopping_samples, 1);
}

TEST(RowTokenizer, TrainOnPromptSupervisesAllButTheFirstToken) {
  const FakeTokenizer tokenizer;
  const Outcome out = RunRow(tokenizer, Prompt("ab", "cd"), {.train_on_prompt = true});
  EXPECT_EQ(out.samples[0].supervised, (Flags{0, 1, 1, 1, 1, 1}));
}

TEST(RowTokenizer, EosIsNotDoubledAndDoubleBosIsAnError) {
  const FakeTokenizer tokenizer;
  EXPECT_EQ(RunRow(tokenizer, Prompt("ab", "cd</s>")).samples[0].tokens, (Ids{kBos, 'a', 'b', 'c', 'd', kEos}));
  EXPECT_EQ(RunRow(tokenizer, Prompt("ab</s>", "c")).samples[0].tokens, (Ids{kBos, 'a', 'b', kEos, 'c', kEos}));
  for (const Record& record : {Prompt("<s>ab", "cd"), Text("<s>ab"), Prompt("", "<s>ab")}) {
    const Outcome out = RunRow(tokenizer, record);
    ASSERT_FALSE(out.status.ok());
    EXPECT_NE(out.status.message().find("f line 1: begins with BOS twice"), std::string::npos) << out.status.message();
  }
}

// Generation starts from the prompt's tokens, even if the tokenizer would merge across the border.
TEST(RowTokenizer, PromptTokensAreThoseOfThePromptAlone) {
  const FakeTokenizer tokenizer({"un", "able", "unable", "u"});
  const auto prompt_alone = tokenizer.Encode("i am un");
  const Outcome merged = RunRow(tokenizer, Prompt("i am un", "able"));
  ASSERT_EQ(merged.samples.size(), 1u);
  const Ids& ids = merged.samples[0].tokens;
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + static_cast<int64_t>(prompt_alone->size())), *prompt_alone);
  EXPECT_EQ(Supervised(tokenizer, merged.samples[0]), "able</s>");
  EXPECT_EQ(merged.statistics.split_borders, 1);
  const Outcome apart = RunRow(tokenizer, Prompt("i am ", "unable"));
  EXPECT_EQ(Supervised(tokenizer, apart.samples[0]), "unable</s>");
  EXPECT_EQ(apart.statistics.split_borders, 0);
}

// SentencePiece puts a space before a text, but must not put one inside it.
TEST(RowTokenizer, NoSpaceAppearsAtTheBorder) {
  const FakeTokenizer tokenizer({"un", "able", "unable"}, /*dummy_prefix=*/true);
  EXPECT_EQ(Whole(tokenizer, RunRow(tokenizer, Prompt("ab", "cd")).samples[0]), "<s>_abcd</s>");
  const Outcome merged = RunRow(tokenizer, Prompt("un", "able"));
  EXPECT_EQ(merged.statistics.split_borders, 1);
  EXPECT_EQ(Whole(tokenizer, merged.samples[0]), "<s>_unable</s>");
}

TEST(RowTokenizer, OverlongRowsAreCutAtTheEndAndCounted) {
  const FakeTokenizer tokenizer;
  const Outcome cut = RunRow(tokenizer, Prompt("abc", "defg"), {.max_seq_len = 6});
  EXPECT_EQ(cut.samples[0].tokens, (Ids{kBos, 'a', 'b', 'c', 'd', 'e'}));
  EXPECT_EQ(cut.statistics.cut_rows, 1);
  EXPECT_EQ(cut.statistics.cut_tokens, 3);
  EXPECT_EQ(cut.statistics.longest_row, 9);
  EXPECT_EQ(cut.statistics.stopping_samples, 0);
  const Outcome dropped = RunRow(tokenizer, Prompt("abcdefgh", "x"), {.max_seq_len = 6});
  EXPECT_TRUE(dropped.status.ok());
  EXPECT_TRUE(dropped.samples.empty());
  EXPECT_EQ(dropped.statistics.dropped_rows, 1);
  EXPECT_EQ(RunRow(tokenizer, Prompt("abc", "d"), {.max_seq_len = 6}).statistics.cut_rows, 0);  // exactly full
}

TEST(RowTokenizer, LongTextsBecomeWindowsThatPredictEveryTokenOnce) {
  const FakeTokenizer tokenizer;
  for (size_t n = 1; n < 40; ++n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += static_cast<char>('A' + i);
    for (const int64_t window : {2, 3, 7, 64}) {
      const Outcome out = RunRow(tokenizer, Text(text), {.max_seq_len = window});
      std::string predicted;
      for (size_t s = 0; s < out.samples.size(); ++s) {
        ASSERT_LE(static_cast<int64_t>(out.samples[s].tokens.size()), window);
        if (s + 1 < out.samples.size()) {
          ASSERT_EQ(static_cast<int64_t>(out.samples[s].tokens.size()), window);
          ASSERT_EQ(out.samples[s + 1].tokens[0], out.samples[s].tokens.back());
        }
        predicted += Supervised(tokenizer, out.samples[s]);
      }
      ASSERT_EQ(predicted, text + "</s>") << "window " << window;
      ASSERT_EQ(out.statistics.supervised, static_cast<int64_t>(n) + 1);
      ASSERT_EQ(out.statistics.cut_rows, 0);
    }
  }
  EXPECT_EQ(RunRow(tokenizer, Text("")).statistics.dropped_rows, 1);
}

TEST(RowTokenizer, ChatsSuperviseTheAssistantsWordsAndTheEndOfTurn) {
  const FakeTokenizer tokenizer;
  // The second template leaves the token that ends the turn out of its generation blocks.
  for (const ChatTemplate& chat :
       {ChatMl(),
        Template("{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
                 "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
                 "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}")}) {
    const Outcome out = RunRow(tokenizer, Chat(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},
        {"role":"user","content":"c"},{"role":"assistant","content":"de"},{"role":"user","content":"unanswered"}])"),
                               {}, &chat);
    ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
    EXPECT_EQ(Supervised(tokenizer, out.samples[0]), "b<|im_end|>de<|im_end|>");
    // No BOS is added before the template's text, and nothing follows the last supervised token.
    EXPECT_EQ(Whole(tokenizer, out.samples[0]),
              "<|im_start|>user:a<|im_end|>\n<|im_start|>assistant:b<|im_end|>\n<|im_start|>user:c<|im_end|>\n"
              "<|im_start|>assistant:de<|im_end|>");
    EXPECT_EQ(out.samples[0].tokens.back(), kImEnd);
    EXPECT_EQ(out.statistics.stopping_samples, 1);
  }
}

TEST(RowTokenizer, ATurnThatTheTemplateLeavesOpenIsEndedByEos) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = Template(
      "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}");
  const Outcome out =
      RunRow(tokenizer, Chat(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])"), {}, &chat);
  ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
  EXPECT_EQ(out.samples[0].tokens.front(), kBos);
  EXPECT_EQ(out.samples[0].tokens.back(), kEos);
  EXPECT_EQ(Supervised(tokenizer, out.samples[0]).substr(0, 1), "b");
}

// As in trainers' variants of Qwen's and Gemma's templates. A second EOS
// after the line end would teach the model to continue after its end.
TEST(RowTokenizer, ABlockThatEndsInWhiteSpaceEndsItsTurnOnce) {
  const FakeTokenizer tokenizer;
  const std::string head =
      "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content + '<|im_end|>\n \n' }}{% endgeneration %}{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor "
      "%}"
      "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}";
  const std::string messages = R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},
      {"role":"user","content":"c"},{"role":"assistant","content":"d"}])";
  // The second template ends the conversation outside its blocks.
  for (const std::string& tail : {std::string(), std::string("{{ eos_token }}")}) {
    const ChatTemplate chat = Template(head + tail);
    const Outcome out = RunRow(tokenizer, Chat(messages), {}, &chat);
    ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
    EXPECT_EQ(Supervised(tokenizer, out.samples[0]), "b<|im_end|>\n \nd<|im_end|>\n \n");
    EXPECT_EQ(out.samples[0].tokens.back(), '\n');
    EXPECT_EQ(out.statistics.stopping_samples, 1);
    EXPECT_EQ(out.statistics.open_turns.count, 0);
  }
  // A turn that ends only in white space still lacks its end.
  const ChatTemplate open = Template(
      "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content + '\n' }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  EXPECT_EQ(Supervised(tokenizer, RunRow(tokenizer, Chat(messages), {}, &open).samples[0]), "b\nd\n</s>");
}

TEST(RowTokenizer, ATemplateThatPrintsBosTwiceIsAnError) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat =
      Template("{{ bos_token }}{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}");
  const Outcome out =
      RunRow(tokenizer, Chat(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])"), {}, &chat);
  ASSERT_FALSE(out.status.ok());
  EXPECT_NE(out.status.message().find("BOS twice"), std::string::npos) << out.status.message();
}

// Qwen3's template drops the thoughts of earlier turns: each
// turn is trained in the text in which it would be generated.
TEST(RowTokenizer, ATemplateThatRewritesTurnsGivesASampleForEach) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = Template(
      "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.thought and loop.last %}({{ m.thought }}){% endif %}"
      "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}");
  const Record record = Chat(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","thought":"x"},
                                 {"role":"user","content":"c"},{"role":"assistant","content":"d","thought":"y"}])");
  const Outcome out = RunRow(tokenizer, record, {}, &chat);
  ASSERT_EQ(out.samples.size(), 2u) << out.status.message();
  EXPECT_EQ(Supervised(tokenizer, out.samples[0]), "(x)b<|im_end|>");
  EXPECT_EQ(Supervised(tokenizer, out.samples[1]), "(y)d<|im_end|>");
  EXPECT_EQ(out.statistics.samples, 2);
  EXPECT_EQ(out.statistics.split_rows, 1);
  EXPECT_EQ(out.statistics.split_samples, 2);
  EXPECT_EQ(out.statistics.split_tokens, out.statistics.tokens);
  EXPECT_EQ(out.statistics.unsplit_tokens, static_cast<int64_t>(out.samples[1].tokens.size()));
  const Outcome one = RunRow(tokenizer, record, {.chat = {.one_text = true}}, &chat);
  ASSERT_EQ(one.samples.size(), 1u) << one.status.message();
  EXPECT_EQ(Whole(tokenizer, one.samples[0]), Whole(tokenizer, out.samples[1]));
  EXPECT_EQ(Supervised(tokenizer, one.samples[0]), "b<|im_end|>(y)d<|im_end|>");
  EXPECT_EQ(one.statistics.split_rows, 0);
  const Outcome all = RunRow(tokenizer, record, {.train_on_prompt = true}, &chat);
  ASSERT_EQ(all.samples.size(), 1u);
  EXPECT_EQ(Whole(tokenizer, all.samples[0]), Whole(tokenizer, out.samples[1]));
}

Outcome RunTemplate(const char* source, const char* row, TokenizeOptions options = {}) {
  static const FakeTokenizer tokenizer;
  auto made = Template::Parse(source, "row.jinja");
  EXPECT_TRUE(made.ok()) << made.status().message();
  options.row_template = &*made;
  auto record = MakeRecord(OrderedJson::parse(row), RecordFormat::kFields, "d.jsonl line 1");
  EXPECT_TRUE(record.ok()) << record.status().message();
  return RunRow(tokenizer, *record, options);
}

TEST(RowTokenizer, WhatARowTemplateMarksCounts) {
  const FakeTokenizer tokenizer;
  const char* row = R"({"q": "ab", "a": {"text": "cd"}, "weight": 3, "messages": 1})";
  const Outcome marked = RunTemplate("Q {{ q }} A {% generation %}{{ a.text }}{% endgeneration %}", row);
  ASSERT_EQ(marked.samples.size(), 1u) << marked.status.message();
  EXPECT_EQ(Whole(tokenizer, marked.samples[0]),
            Whole(tokenizer, RunRow(tokenizer, Prompt("Q ab A ", "cd")).samples[0]));
  EXPECT_EQ(Supervised(tokenizer, marked.samples[0]),
            Supervised(tokenizer, RunRow(tokenizer, Prompt("Q ab A ", "cd")).samples[0]));
  EXPECT_TRUE(marked.samples[0].weights.empty()) << "weight is a field as any other";
  // Text behind the last block affects nothing.
  const Outcome tail = RunTemplate("Q {{ q }} A {% generation %}{{ a.text }}{% endgeneration %} tail", row);
  EXPECT_EQ(tail.samples[0].tokens, marked.samples[0].tokens);
}

TEST(RowTokenizer, WithoutAMarkAllOfARowTemplatesTextCounts) {
  const FakeTokenizer tokenizer;
  const Outcome out = RunTemplate("{{ q }} {{ missing }}{{ q }}", R"({"q": "ab"})");
  Record text{.kind = RecordKind::kText, .where = "d.jsonl line 1"};
  text.text = "ab ab";
  const Outcome expected = RunRow(tokenizer, text);
  ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
  EXPECT_EQ(out.samples[0].tokens, expected.samples[0].tokens);
  EXPECT_EQ(out.samples[0].supervised, expected.samples[0].supervised);
  EXPECT_GT(RunTemplate("{{ q * 50 }}", R"({"q": "ab "})", {.max_seq_len = 16}).samples.size(), 1u) << "windows";
  const Outcome blank = RunTemplate("{{ missing }} ", R"({"q": "ab"})");
  EXPECT_TRUE(blank.samples.empty());
  EXPECT_EQ(blank.statistics.dropped_rows, 1);
}

TEST(RowTokenizer, FaultsOfARowTemplateNameRowAndLine) {
  EXPECT_EQ(RunTemplate("Q\n{{ a.text }}", R"({"q": "ab"})").status.message(),
            "d.jsonl line 1: row.jinja, line 2: 'a' is undefined");
  EXPECT_NE(RunTemplate("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}", "{}")
                .status.message()
                .find("put it outside"),
            std::string::npos);
}

// In one text of it no turn counts by itself: of the first nothing is printed there, and the second comes too late.
TEST(RowTokenizer, TrainOnPromptKeepsARowWhoseTurnsAreEmptyOrBeyondTheEnd) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = Template(
      "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.reasoning_content and loop.last %}"
      "({{ m.reasoning_content }}){% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
      "%}<|im_start|>assistant:{% endif %}");
  Record record = Chat(R"([{"role":"user","content":"a"},{"role":"assistant","content":"","reasoning_content":"x"},
                           {"role":"user","content":""},{"role":"assistant","content":"d"}])");
  record.messages[2]["content"] = std::string(400, 'c');
  const TokenizeOptions last = {.max_seq_len = 64, .chat = {.one_text = true}};
  const Outcome turns = RunRow(tokenizer, record, last, &chat);
  EXPECT_TRUE(turns.samples.empty()) << turns.status.message();
  EXPECT_EQ(turns.statistics.dropped_rows, 1);
  TokenizeOptions all = last;
  all.train_on_prompt = true;
  const Outcome out = RunRow(tokenizer, record, all, &chat);
  ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
  EXPECT_TRUE(Whole(tokenizer, out.samples[0])
                  .starts_with("<|im_start|>user:a<|im_end|>\n<|im_start|>assistant:<|im_end|>\n<|im_start|>user:cc"))
      << Whole(tokenizer, out.samples[0]);
  EXPECT_EQ(out.samples[0].tokens.size(), 64u);
  EXPECT_EQ(out.statistics.dropped_rows, 0);
  EXPECT_EQ(out.statistics.cut_rows, 1);
}

TEST(RowTokenizer, ChatTokensAreThoseOfTheRenderedTextWhereNoTokenCrossesABorder) {
  const ChatTemplate chat = ChatMl();
  const Record record = Chat(R"([{"role":"system","content":"be able"},{"role":"user","content":"un able"},
                                {"role":"assistant","content":"unable"}])");
  for (const bool dummy_prefix : {false, true}) {
    const FakeTokenizer tokenizer({"un", "able", "unable", "user", "\n"}, dummy_prefix);
    const auto text = chat.Render(record.messages, {}, /*add_generation_prompt=*/false);
    ASSERT_TRUE(text.ok()) << text.status().message();
    auto whole = tokenizer.Encode(*text, {.add_special = false});
    ASSERT_EQ(whole->back(), tokenizer.TokenToId("\n"));
    whole->pop_back();  // after the last turn
    const Outcome out = RunRow(tokenizer, record, {.train_on_prompt = true}, &chat);
    EXPECT_EQ(out.samples[0].tokens, *whole);
    EXPECT_EQ(out.statistics.split_borders, 0);
  }
}

TEST(RowTokenizer, ATokenAcrossTheStartOfAnAnswerIsSplitAsInGeneration) {
  const ChatTemplate chat = ChatMl();
  const FakeTokenizer tokenizer({":un", ":"});
  const Outcome out =
      RunRow(tokenizer, Chat(R"([{"role":"user","content":"a"},{"role":"assistant","content":"un"}])"), {}, &chat);
  EXPECT_EQ(Supervised(tokenizer, out.samples[0]), "un<|im_end|>");
  EXPECT_EQ(out.statistics.split_borders, 1);
}

TEST(RowTokenizer, AnUnknownRoleIsAnError) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = ChatMl();
  for (const char* messages : {R"([{"role":"usr","content":"a"},{"role":"assistant","content":"b"}])",
                               R"([{"role":"user","content":"a"},{"role":"asistant","content":"b"}])"}) {
    const Outcome out = RunRow(tokenizer, Chat(messages), {}, &chat);
    ASSERT_FALSE(out.status.ok());
    EXPECT_NE(out.status.message().find("unknown role"), std::string::npos) << out.status.message();
    EXPECT_NE(out.status.message().find("f line 1"), std::string::npos) << out.status.message();
  }
  // A role that the template names is known.
  const ChatTemplate granite = Template(
      "{% for m in messages %}{% if m.role.startswith('document') %}D{% endif %}<|im_start|>{{ m.role }}:"
      "{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}");
  const Record record = Chat(R"([{"role":"document 1","content":"x"},{"role":"user","content":"a"},
                                 {"role":"assistant","content":"b"}])");
  EXPECT_TRUE(RunRow(tokenizer, record, {}, &granite).status.ok());
  EXPECT_FALSE(RunRow(tokenizer, record, {}, &chat).status.ok());
}

TEST(RowTokenizer, MessagesSwitchedOffAreContextOnly) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = ChatMl();
  Record record = Chat(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":0},
                           {"role":"user","content":"q"},{"role":"assistant","content":"b"}])");
  EXPECT_EQ(Supervised(tokenizer, RunRow(tokenizer, record, {}, &chat).samples[0]), "b<|im_end|>");
  record.messages[3]["weight"] = 0;
  const Outcome none = RunRow(tokenizer, record, {}, &chat);
  EXPECT_TRUE(none.status.ok()) << none.status.message();
  EXPECT_EQ(none.statistics.dropped_rows, 1);
  // train_on_prompt needs no assistant message.
  EXPECT_EQ(RunRow(tokenizer, record, {.train_on_prompt = true}, &chat).samples.size(), 1u);
}

TEST(RowTokenizer, WeightsOfTurnsAndRowsMultiply) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = ChatMl();
  Record record = Chat(R"([{"role":"user","content":"q"},{"role":"assistant","content":"aa","weight":0.5},
                           {"role":"user","content":"q"},{"role":"assistant","content":"b"}])");
  const Outcome turns = RunRow(tokenizer, record, {}, &chat);
  ASSERT_EQ(turns.samples.size(), 1u);
  const auto weights_of = [](const Sample& sample) {
    std::vector<TokenWeight> weights;
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
      if (sample.supervised[i]) weights.push_back(sample.weights[i]);
    }
    return weights;
  };
  constexpr TokenWeight one = kUnitWeight;
  EXPECT_EQ(weights_of(turns.samples[0]), (std::vector<TokenWeight>{one / 2, one / 2, one / 2, one, one}));
  EXPECT_EQ(turns.statistics.weighted, 3);
  EXPECT_EQ(turns.statistics.least_weight, one / 2);
  EXPECT_EQ(turns.statistics.largest_weight, one / 2);
  record.weight = 4 * one;
  EXPECT_EQ(weights_of(RunRow(tokenizer, record, {}, &chat).samples[0]),
            (std::vector<TokenWeight>{2 * one, 2 * one, 2 * one, 4 * one, 4 * one}));
  record.messages[1]["weight"] = 65;
  EXPECT_NE(RunRow(tokenizer, record, {}, &chat).status.message().find("the weight of the row times its turn's is 260"),
            std::string::npos);
  // A product that is rounded to 0 is masked.
  record.weight = 1;
  record.messages[1]["weight"] = 0.25;
  EXPECT_EQ(Supervised(tokenizer, RunRow(tokenizer, record, {}, &chat).samples[0]), "b<|im_end|>");
}

TEST(RowTokenizer, AWeightOfARowIsThatOfAllItsTokens) {
  const FakeTokenizer tokenizer;
  for (Record record : {Prompt("a", "bc"), Text("abcdefgh")}) {
    const auto plain = RunRow(tokenizer, record, {.max_seq_len = 5}).samples;
    ASSERT_FALSE(plain.empty());
    EXPECT_TRUE(plain[0].weights.empty());
    record.weight = kUnitWeight / 8;
    const auto weighted = RunRow(tokenizer, record, {.max_seq_len = 5}).samples;
    ASSERT_EQ(weighted.size(), plain.size());
    for (size_t s = 0; s < plain.size(); ++s) {
      EXPECT_EQ(weighted[s].tokens, plain[s].tokens);
      EXPECT_EQ(weighted[s].supervised, plain[s].supervised);
      for (size_t i = 0; i < plain[s].tokens.size(); ++i) {
        if (plain[s].supervised[i]) {
          EXPECT_EQ(weighted[s].weights[i], kUnitWeight / 8);
        }
      }
    }
    record.weight = 0;
    const Outcome none = RunRow(tokenizer, record);
    EXPECT_TRUE(none.status.ok());
    EXPECT_TRUE(none.samples.empty());
    EXPECT_EQ(none.statistics.dropped_rows, 1);
  }
}

Record Conversation(int turns, size_t length) {
  Record record{.kind = RecordKind::kMessages, .where = "f line 1"};
  record.messages = OrderedJson::array();
  for (int i = 0; i < turns; ++i) {
    record.messages.push_back({{"role", "user"}, {"content", std::string(length, 'u')}});
    record.messages.push_back({{"role", "assistant"}, {"content", "a"}});
  }
  return record;
}

TEST(RowTokenizer, ConversationsThatWouldTakeTooLongAreErrors) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = ChatMl();
  constexpr int64_t kAll = 1 << 30;
  EXPECT_TRUE(RunRow(tokenizer, Conversation(100, 1000), {.max_seq_len = kAll}, &chat).status.ok());
  const Outcome out = RunRow(tokenizer, Conversation(2100, 1), {.max_seq_len = kAll}, &chat);
  ASSERT_FALSE(out.status.ok());
  EXPECT_NE(out.status.message().find("f line 1: a conversation of"), std::string::npos) << out.status.message();
}

// Spans of turns that would be cut off are not searched, since that takes time in proportion to the square of their
// number. Samples and counts stay the same.
TEST(RowTokenizer, ALongConversationIsCutLikeAnyRow) {
  const FakeTokenizer tokenizer;
  for (const bool thinks : {false, true}) {  // true: a template that rewrites turns, so that each needs its own text
    const ChatTemplate chat =
        !thinks ? ChatMl()
                : Template(
                      "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.role == 'assistant' and loop.last %}(hm)"
                      "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
                      "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}");
    const Record record = Conversation(30, 10);
    const Outcome all = RunRow(tokenizer, record, {.max_seq_len = 1 << 20}, &chat);
    ASSERT_EQ(all.samples.size(), thinks ? 30u : 1u) << all.status.message();
    for (const int64_t max_seq_len : {10, 40, 100, 555}) {
      const Outcome cut = RunRow(tokenizer, record, {.max_seq_len = max_seq_len}, &chat);
      ASSERT_TRUE(cut.status.ok()) << cut.status.message();
      size_t expected = 0;
      for (const Sample& whole : all.samples) {
        Ids tokens = whole.tokens;
        Flags supervised = whole.supervised;
        tokens.resize(std::min(tokens.size(), static_cast<size_t>(max_seq_len)));
        supervised.resize(tokens.size());
        while (!supervised.empty() && !supervised.back()) supervised.pop_back(), tokens.pop_back();
        if (tokens.empty()) continue;
        ASSERT_LT(expected, cut.samples.size());
        EXPECT_EQ(cut.samples[expected].tokens, tokens);
        EXPECT_EQ(cut.samples[expected++].supervised, supervised);
      }
      EXPECT_EQ(cut.samples.size(), expected) << max_seq_len;
      if (thinks) continue;
      // The line end after the last turn is counted only if turns were left out.
      EXPECT_NEAR(static_cast<double>(cut.statistics.longest_row), static_cast<double>(all.statistics.longest_row), 1);
      EXPECT_NEAR(static_cast<double>(cut.statistics.cut_tokens),
                  static_cast<double>(all.statistics.longest_row - max_seq_len), 1);
      EXPECT_EQ(cut.statistics.cut_rows, 1);
    }
  }
  const ChatTemplate chat = ChatMl();
  const Outcome huge = RunRow(tokenizer, Conversation(4500, 1), {.max_seq_len = 512}, &chat);
  EXPECT_TRUE(huge.status.ok()) << huge.status.message();
  EXPECT_EQ(huge.samples.size(), 1u);
}

// Alpaca has 28 empty answers. Neither they count toward the loss, nor the tokens that end their turns.
TEST(RowTokenizer, EmptyAnswersAreNotTrainedOn) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = ChatMl();
  for (const char* completion : {"", " ", "\n\n"}) {
    const Outcome empty = RunRow(tokenizer, Prompt("ab", completion));
    EXPECT_TRUE(empty.status.ok() && empty.samples.empty());
    EXPECT_EQ(empty.statistics.empty_answers.count, 1);
    EXPECT_EQ(empty.statistics.empty_answers.first, "f line 1");
    EXPECT_EQ(empty.statistics.dropped_rows, 1);
  }
  EXPECT_EQ(RunRow(tokenizer, Prompt("ab", "c")).statistics.empty_answers.count, 0);
  const Record record = Chat(R"([{"role":"user","content":"q"},{"role":"assistant","content":" \n"},
      {"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"assistant","content":""}])");
  const Outcome out = RunRow(tokenizer, record, {}, &chat);
  ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
  EXPECT_EQ(Supervised(tokenizer, out.samples[0]), "a<|im_end|>");
  EXPECT_EQ(out.statistics.empty_answers.count, 2);
  EXPECT_EQ(out.statistics.empty_answers.first, "f line 1, message 2");
  EXPECT_EQ(RunRow(tokenizer, record, {.train_on_prompt = true}, &chat).statistics.empty_answers.count, 0);
  const Outcome nothing =
      RunRow(tokenizer, Chat(R"([{"role":"user","content":"q"},{"role":"assistant","content":""}])"), {}, &chat);
  EXPECT_TRUE(nothing.samples.empty());
  EXPECT_EQ(nothing.statistics.dropped_rows, 1);
  // A special token may be the whole answer.
  EXPECT_EQ(Supervised(tokenizer, RunRow(tokenizer, Prompt("ab", "<s>")).samples[0]), "<s></s>");
}

TEST(RowTokenizer, TurnsOfWhichTheTemplatePrintsNothingAreNotTrainedOn) {
  const FakeTokenizer tokenizer;
  const ChatTemplate without = ChatMl();
  const ChatTemplate with = Template(
      "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
      "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}");
  const Record record = Chat(R"([{"role":"user","content":"q"},
      {"role":"assistant","content":"","tool_calls":[{"function":{"name":"weather","arguments":{}}}]},
      {"role":"tool","content":"sun"},{"role":"assistant","content":"a"}])");
  const Outcome out = RunRow(tokenizer, record, {}, &without);
  ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
  EXPECT_EQ(Supervised(tokenizer, out.samples[0]), "a<|im_end|>");
  EXPECT_EQ(out.statistics.unprinted_turns.count, 1);
  EXPECT_EQ(out.statistics.unprinted_turns.first, "f line 1, message 2");
  const Finding& calls = out.statistics.unprinted_fields.by_name.at("tool_calls");
  EXPECT_EQ(calls.count, 1);
  EXPECT_EQ(calls.first, "f line 1, message 2");
  EXPECT_EQ(out.statistics.empty_answers.count, 0);
  const Outcome printed = RunRow(tokenizer, record, {}, &with);
  EXPECT_EQ(Supervised(tokenizer, printed.samples[0]), "weather<|im_end|>a<|im_end|>");
  EXPECT_EQ(printed.statistics.unprinted_turns.count, 0);
  EXPECT_TRUE(printed.statistics.unprinted_fields.by_name.empty());
  // A row's tools that no turn calls.
  Record unused = Chat(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])");
  unused.tools = OrderedJson::parse(R"([{"type":"function","function":{"name":"weather"}}])");
  const Finding tools = RunRow(tokenizer, unused, {}, &with).statistics.unprinted_fields.by_name.at("tools");
  EXPECT_EQ(tools.count, 1);
  EXPECT_EQ(tools.first, "f line 1");
}

TEST(RowTokenizer, ReasoningThatTheTemplateLeavesOutIsReportedByTurn) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = ChatMl();
  const Outcome out = RunRow(tokenizer, Chat(R"([{"role":"user","content":"q"},
      {"role":"assistant","content":"a","reasoning_content":"Easy."},{"role":"user","content":"r"},
      {"role":"assistant","content":"b","reasoning_content":"Hard."}])"),
                             {}, &chat);
  ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
  EXPECT_EQ(Supervised(tokenizer, out.samples[0]), "a<|im_end|>b<|im_end|>");
  const Finding& reasoning = out.statistics.unprinted_fields.by_name.at("reasoning");
  EXPECT_EQ(reasoning.count, 2);
  EXPECT_EQ(reasoning.first, "f line 1, message 2");
}

TEST(RowTokenizer, VariablesOfARowWinOverThoseOfTheRun) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = Template(
      "{% for m in messages %}<|im_start|>{{ m.role }}:{{ x }}{{ y }}{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant:{{ x }}{{ y }}{% endif %}");
  Record record = Chat(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])");
  record.template_variables = {{"x", 1}};
  const OrderedJson variables = {{"x", 8}, {"y", 9}};
  const Outcome out = RunRow(tokenizer, record, {.chat = {.variables = &variables}}, &chat);
  ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
  EXPECT_EQ(Whole(tokenizer, out.samples[0]), "<|im_start|>user:19q<|im_end|>\n<|im_start|>assistant:19a<|im_end|>");
}

TEST(RowTokenizer, TurnsThatEndWithTextAreReported) {
  const FakeTokenizer tokenizer;
  const Record record = Chat(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"},
      {"role":"user","content":"q"},{"role":"assistant","content":"b"}])");
  const ChatTemplate text = Template(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]\n{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  const Outcome out = RunRow(tokenizer, record, {}, &text);
  ASSERT_EQ(out.samples.size(), 1u) << out.status.message();
  EXPECT_EQ(Supervised(tokenizer, out.samples[0]), "a[end]b[end]</s>");
  EXPECT_EQ(out.statistics.open_turns.count, 2);
  EXPECT_EQ(out.statistics.open_turns.first, "f line 1");
  const ChatTemplate chat = ChatMl();
  EXPECT_EQ(RunRow(tokenizer, record, {}, &chat).statistics.open_turns.count, 0);
}

TEST(RowTokenizer, InstructionsCanGoThroughTheChatTemplate) {
  const FakeTokenizer tokenizer;
  const ChatTemplate chat = ChatMl();
  Record record = Prompt("ab", "cd");
  record.is_instruction = true;
  EXPECT_EQ(Whole(tokenizer, RunRow(tokenizer, record).samples[0]), "<s>ab cd</s>");
  EXPECT_EQ(Whole(tokenizer, RunRow(tokenizer, record, {.instructions_as_conversations = true}, &chat).samples[0]),
            "<|im_start|>user:ab<|im_end|>\n<|im_start|>assistant:cd<|im_end|>");
  EXPECT_FALSE(RunRow(tokenizer, record, {.instructions_as_conversations = true}).status.ok());
  // The two halves of one text never become a conversation.
  record.is_instruction = false;
  EXPECT_EQ(Whole(tokenizer, RunRow(tokenizer, record, {.instructions_as_conversations = true}, &chat).samples[0]),
            "<s>abcd</s>");
}

TEST(RowTokenizer, RowsOfIdsAreTakenAsTheyAre) {
  const FakeTokenizer tokenizer;
  Record record{.kind = RecordKind::kTokens, .where = "f line 1"};
  record.input_ids = {5, 6, 7, 8};
  record.labels = {-100, -100, 7, -100};
  const Outcome out = RunRow(tokenizer, record, {.train_on_prompt = true});
  EXPECT_EQ(out.samples[0].tokens, (Ids{5, 6, 7}));
  EXPECT_EQ(out.samples[0].supervised, (Flags{0, 0, 1}));
  record.input_ids[1] = 5000;
  const Outcome bad = RunRow(tokenizer, record);
  EXPECT_NE(bad.status.message().find("input_ids[1] is 5000"), std::string::npos) << bad.status.message();
  EXPECT_TRUE(RunRow(tokenizer, record, {.vocab_size = 6000}).status.ok());
}

TEST(RowTokenizer, TokensThatTheModelHasNoEmbeddingForAreErrors) {
  const FakeTokenizer tokenizer({"[PAD]"});
  const TokenizeOptions without = {.vocab_size = tokenizer.vocab_size() - 1};
  EXPECT_TRUE(RunRow(tokenizer, Prompt("a", "b"), without).status.ok());
  EXPECT_TRUE(RunRow(tokenizer, Prompt("a", "[PAD]")).status.ok());
  for (const Record& record : {Prompt("a[PAD]", "b"), Prompt("a", "[PAD]"), Text("a[PAD]b")}) {
    const Status status = RunRow(tokenizer, record, without).status;
    EXPECT_NE(status.message().find("f line 1: has the token 260 ('[PAD]'), but the model has embeddings for only 260"),
              std::string::npos)
        << status.message();
  }
}

TEST(RowTokenizer, ErrorsSayWhatIsMissing) {
  const FakeTokenizer tokenizer;
  EXPECT_NE(RunRow(tokenizer, Chat("[]")).status.message().find("--chat_template"), std::string::npos);
  EXPECT_FALSE(RunRow(tokenizer, Prompt("a", "b"), {.max_seq_len = 1}).status.ok());
  const ChatTemplate chat = ChatMl();
  const Outcome out =
      RunRow(tokenizer, Chat(R"([{"role":"evil","content":"a"},{"role":"assistant","content":"b"}])"), {}, &chat);
  EXPECT_NE(out.status.message().find("f line 1"), std::string::npos) << out.status.message();
  EXPECT_NE(out.status.message().find("no evil"), std::string::npos) << out.status.message();
  FakeTokenizer endless;
  endless.RemoveEos();
  EXPECT_NE(RunRow(endless, Prompt("a", "b")).status.message().find("EOS"), std::string::npos);
}

// Turns are encoded together with those before them; what is cut off counts no token.
TEST(Tokenize, UnknownTokensAreCountedOncePerTokenOfTheSamples) {
  FakeTokenizer tokenizer;
  tokenizer.Forget("+\n");
  const ChatTemplate plain = Template("{% for m in messages %}{{ m.role }}:+{{ m.content }}\n{% endfor %}");
  const auto out = RunRow(tokenizer,
                          Chat(R"([{"role":"user","content":"+a"},{"role":"assistant","content":"b+"},)"
                               R"({"role":"user","content":"c"},{"role":"assistant","content":"++"}])"),
                          {}, &plain);
  ASSERT_TRUE(out.status.ok()) << out.status.message();
  EXPECT_EQ(out.statistics.unknown.characters, (std::map<std::string, int64_t>{{"+", 8}, {"\\n", 4}}));
  ASSERT_EQ(out.samples.size(), 1u);
  const Ids& ids = out.samples[0].tokens;
  EXPECT_EQ(out.statistics.unknown.count, std::count(ids.begin(), ids.end(), '?'));
  EXPECT_EQ(out.statistics.unknown.count, 12);
  EXPECT_EQ(out.statistics.unknown.token, "?");
  EXPECT_EQ(RunRow(tokenizer, Prompt("++", "a+++"), {.max_seq_len = 5}).statistics.unknown.count, 3);
}

TEST(Tokenize, SamplesHaveTheTextOfTheirUnknownTokens) {
  FakeTokenizer tokenizer;
  tokenizer.Forget("+-*");
  using Texts = std::vector<std::string>;
  EXPECT_EQ(RunRow(tokenizer, Prompt("+a?", "b-c")).samples[0].unknown, (Texts{"+", "", "-"}));
  const ChatTemplate chat = ChatMl();
  EXPECT_EQ(RunRow(tokenizer,
                   Chat(R"([{"role":"user","content":"+"},{"role":"assistant","content":"-"},)"
                        R"({"role":"user","content":"*"},{"role":"assistant","content":"+"}])"),
                   {}, &chat)
                .samples[0]
                .unknown,
            (Texts{"+", "-", "*", "+"}));
  const auto text = RunRow(tokenizer, Text("a+b-*c?d+"), {.max_seq_len = 4});  // <s>a+b | b-*c | c?d+ | +</s>
  ASSERT_EQ(text.samples.size(), 4u);
  const Texts expected[] = {{"+"}, {"-", "*"}, {"", "+"}, {"+"}};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(text.samples[i].unknown, expected[i]) << i;
}

}  // namespace
}  // namespace temper::row_tokenizer_test
