#include "data/record.h"

#include <gtest/gtest.h>

#include "data/template/conversation.h"

namespace temper::record_test {
namespace {

Result<Record> Read(const std::string& text) {
  auto row = ParseOrderedJson(text, "f line 7");
  EXPECT_TRUE(row.ok()) << row.status().message();
  TEMPER_ASSIGN_OR_RETURN(const RecordFormat format, DetectFormat(*row, "f line 7"));
  return MakeRecord(*std::move(row), format, "f line 7");
}

void ExpectError(const std::string& text, const std::string& hint) {
  const auto record = Read(text);
  ASSERT_FALSE(record.ok()) << text;
  EXPECT_NE(record.status().message().find(hint), std::string::npos) << record.status().message();
  EXPECT_NE(record.status().message().find("f line 7"), std::string::npos) << record.status().message();
}

std::vector<int> Supervised(const Record& record) {
  std::vector<int> supervised;
  for (const auto& message : record.messages) supervised.push_back(IsSupervised(message));
  return supervised;
}

void ExpectPrompt(const std::string& text, const std::string& prompt, const std::string& completion) {
  const auto record = Read(text);
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record->kind, RecordKind::kPrompt);
  EXPECT_EQ(PromptText(*record), prompt) << text;
  EXPECT_EQ(CompletionText(*record), completion) << text;
}

void ExpectMessages(const std::string& text, const std::string& messages) {
  const auto record = Read(text);
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record->kind, RecordKind::kMessages);
  EXPECT_EQ(record->messages.dump(), OrderedJson::parse(messages).dump());
}

TEST(Record, PromptAndCompletionAreTakenAsTheyAre) {
  ExpectPrompt(R"({"prompt": "2+2=", "completion": "4"})", "2+2=", "4");
  ExpectPrompt(R"({"prompt": "2+2=", "completion": "4", "system": "Add.", "id": 3})", "Add.\n\n2+2=", "4");
  ExpectPrompt(R"({"prompt": "", "completion": ""})", "", "");
}

TEST(Record, QuestionAndAnswerAreKeptApart) {
  ExpectPrompt(R"({"question": "Why?", "answer": "So."})", "Why?", " So.");
  ExpectPrompt(R"({"question": "Why? ", "answer": "So."})", "Why? ", "So.");
  ExpectPrompt(R"({"question": "Why?", "answer": "\nSo."})", "Why?", "\nSo.");
}

TEST(Record, AlpacaFieldsMakeOnePrompt) {
  ExpectPrompt(R"({"instruction": "Add.", "input": "2 2", "output": "4"})", "Add.\n\n2 2", " 4");
  ExpectPrompt(R"({"instruction": "Add.", "input": "", "output": "4", "text": "whole"})", "Add.", " 4");
  ExpectPrompt(R"({"instruction": "Add.", "input": null, "response": "4", "system": "S"})", "S\n\nAdd.", " 4");
  ExpectMessages(R"({"instruction": "C", "output": "D", "system": "S", "history": [["A", "B"]]})",
                 R"([{"role":"system","content":"S"},{"role":"user","content":"A"},{"role":"assistant","content":"B"},
                     {"role":"user","content":"C"},{"role":"assistant","content":"D"}])");
}

TEST(Record, TheContextOfAQuestionOrAnInstructionIsPartOfItsPrompt) {  // Dolly, SQuAD
  ExpectPrompt(R"({"instruction": "Who?", "context": "By Ada.", "response": "Ada", "category": "qa"})",
               "Who?\n\nBy Ada.", " Ada");
  ExpectPrompt(R"({"instruction": "Who?", "context": "", "response": "Ada"})", "Who?", " Ada");
  ExpectPrompt(R"({"question": "Who?", "context": "By Ada.", "answer": "Ada"})", "Who?\n\nBy Ada.", " Ada");
  ExpectPrompt(R"({"question": "Who?", "context": {"a": ["By Ada."]}, "answer": "Ada"})", "Who?", " Ada");  // HotpotQA
}

TEST(Record, NamesTheFieldsThatItsFormatDoesNotRead) {
  const auto unread = [](const std::string& row) {
    const auto record = Read(row);
    EXPECT_TRUE(record.ok()) << record.status().message();
    return record.ok() ? record->unread : std::vector<std::string>();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(unread(R"({"instruction": "a", "context": "b", "response": "c", "category": "qa"})"), Names{"category"});
  EXPECT_EQ(unread(R"({"instruction": "a", "output": "b", "response": "c", "input": "", "weight": 1})"),
            Names{"response"});
  EXPECT_EQ(unread(R"({"instruction": "a", "output": null, "response": "c"})"), Names{});
  EXPECT_EQ(unread(R"({"question": "a", "context": {"a": ["b"]}, "answer": "c"})"), Names{"context"});
  EXPECT_EQ(unread(R"({"text": "a", "images": ["https://a/b.png"], "videos": 0})"), (Names{"images", "videos"}));
  EXPECT_EQ(unread(R"({"messages": [{"role": "user", "content": "a"}], "tools": [], "system": "s", "source": "x",
                       "prompt": "a", "score": 0, "empty": "", "none": null, "list": [], "images": [], "chosen": "a"})"),
            (Names{"source", "prompt", "score", "chosen"}));
  EXPECT_EQ(unread(R"({"messages": [{"role": "system", "content": "a"}], "system": "b"})"), Names{"system"});
  EXPECT_EQ(unread(R"({"conversations": [{"from": "system", "value": "a"}], "system": "b"})"), Names{"system"});
  EXPECT_EQ(unread(R"({"prompt": "a", "completion": "b", "tools": [1], "system": "s"})"), Names{"tools"});
  EXPECT_EQ(unread(R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant",
                       "content": "b"}], "tools": [{"name": "f"}], "id": 1})"),
            Names{"id"});
  EXPECT_EQ(unread(R"({"text": "a", "label": 0, "image": "a.png", "meta": {"x": 1}})"),
            (Names{"label", "image", "meta"}));
  EXPECT_EQ(unread(R"({"input_ids": [1, 2], "token_type_ids": [0, 0]})"), Names{"token_type_ids"});
}

TEST(Record, ARowOfWhichTextIsOnlyAPartIsRefused) {
  const std::string chat =
      R"("messages": [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": "A"}])";
  const std::string turns =
      R"("conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "A"}])";
  for (const char* field :
       {R"("images": ["a.png"])", R"("audios": ["a.wav"])", R"("videos": [{"path": "a"}])", R"("image": "a.png")"}) {
    ExpectError("{" + chat + ", " + field + "}", "Temper trains on text only");
    ExpectError("{" + turns + ", " + field + "}", "Temper trains on text only");
  }
  ExpectError(R"({"prompt": "a", "completion": "b", "images": ["a.png"]})", "has 'images'");
  EXPECT_TRUE(Read("{" + chat + R"(, "images": [], "videos": null})").ok());
}

TEST(Record, PreferencesAreRefusedWithWhatToDo) {
  ExpectError(R"({"conversations": [{"from": "human", "value": "Name a bird."}],
                  "chosen": {"from": "gpt", "value": "A jay."}, "rejected": {"from": "gpt", "value": "A cat."}})",
              "keep the chosen answer, as the last of 'conversations', from gpt, and remove both fields");
  ExpectError(R"({"messages": [{"role": "user", "content": "a"}], "chosen": "b", "rejected": "c"})",
              "keep the chosen answer, as the last of 'messages', the assistant's");
  ExpectError(R"({"prompt": "a", "completion": "b", "chosen": "b", "rejected": "c"})", "as the row's one answer");
  for (const char* label : {R"("label": false)", R"("label": "False")", R"("kto_tag": false)"}) {
    ExpectError(std::string(R"({"prompt": "a", "completion": "b", )") + label + "}", "is false, so its answer is one");
  }
  EXPECT_TRUE(Read(R"({"prompt": "a", "completion": "b", "label": true})").ok());
  EXPECT_TRUE(Read(R"({"prompt": "a", "completion": "b", "label": 0})").ok());
  EXPECT_TRUE(Read(R"({"text": "a", "label": false})").ok()) << "classes of texts";
}

TEST(Record, VariablesOfTheTemplateAreReadWhereThereIsOne) {
  const std::string variables = R"("chat_template_kwargs": {"enable_thinking": false})";
  for (const char* row :
       {R"("messages": [{"role": "user", "content": "a"}])", R"("conversations": [{"from": "human", "value": "a"}])",
        R"("question": "a", "answer": "b")", R"("instruction": "a", "output": "b")"}) {
    const auto record = Read(std::string("{") + row + ", " + variables + "}");
    ASSERT_TRUE(record.ok()) << record.status().message();
    EXPECT_EQ(record->template_variables.dump(), R"({"enable_thinking":false})") << row;
    EXPECT_TRUE(record->unread.empty()) << row;
  }
  const auto plain = Read(R"({"prompt": "a", "completion": "b", )" + variables + "}");
  EXPECT_EQ(plain->unread, std::vector<std::string>{"chat_template_kwargs"});
  ExpectError(R"({"messages": [], "chat_template_kwargs": 3})", "should be an object");
  ExpectError(R"({"messages": [], "chat_template_kwargs": {"tools": 3}})", "'tools' is set for every template");
}

TEST(Record, InstructionsCanBeConversations) {
  const auto record = Read(R"({"instruction": "Add.", "input": "2 2", "output": "4", "system": "S"})");
  ASSERT_TRUE(record.ok());
  EXPECT_TRUE(record->is_instruction);
  const Record chat = AsConversation(*record);
  EXPECT_EQ(
      chat.messages.dump(),
      R"([{"role":"system","content":"S"},{"role":"user","content":"Add.\n\n2 2"},{"role":"assistant","content":"4"}])");
  EXPECT_FALSE(Read(R"({"prompt": "2+2=", "completion": "4"})")->is_instruction);
}

TEST(Record, MessagesKeepTheirOrderAndExtraKeys) {
  ExpectMessages(R"({"messages": [{"content": "hi", "role": "user", "name": "bob"}]})",
                 R"([{"content": "hi", "role": "user", "name": "bob"}])");
  ExpectMessages(R"([{"role": "user", "content": "hi"}])", R"([{"role": "user", "content": "hi"}])");
  ExpectMessages(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "value": "b"}]}]})",
      R"([{"role": "user", "content": "ab"}])");
  ExpectMessages(
      R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]})",
      R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}])");
}

TEST(Record, WeightsOfMessagesSayWhatIsSupervised) {
  const auto record = Read(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "weight": 0}, {"role": "assistant", "content": "c", "loss_weight": 1.0},
      {"role": "assistant", "content": "d", "train": false}]})");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(Supervised(*record), (std::vector<int>{0, 0, 1, 0}));
  EXPECT_EQ(record->messages[1].dump(), R"({"role":"assistant","content":"b","weight":0})");
  EXPECT_EQ(record->messages[2].dump(), R"({"role":"assistant","content":"c"})");
  EXPECT_EQ(record->messages[3].dump(), R"({"role":"assistant","content":"d","weight":0})");
}

TEST(Record, WeightsOfMessagesAreMultiplesOfAPowerOfTwo) {
  const auto record = Read(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "weight": 0.5}, {"role": "assistant", "content": "c", "loss_weight": 0.1},
      {"role": "assistant", "content": "d", "weight": 4, "loss": 0.5}, {"role": "assistant", "content": "e", "weight": 1e-9}]})");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(Supervised(*record), (std::vector<int>{0, 1, 1, 1, 0}));
  EXPECT_EQ(WeightOf(record->messages[0]), kUnitWeight);
  EXPECT_EQ(record->messages[1].dump(), R"({"role":"assistant","content":"b","weight":0.5})");
  EXPECT_EQ(WeightOf(record->messages[2]), 6554u);  // 0.1 * 65536 = 6553.6
  EXPECT_EQ(WeightOf(record->messages[3]), 2 * kUnitWeight);
  for (const char* bad : {"-0.5", "256.1", "1e300", "\"1\"", "[1]"}) {
    ExpectError(std::string(R"({"messages": [{"role": "assistant", "content": "b", "weight": )") + bad + "}]}",
                "should be a number");
  }
  ExpectError(R"({"messages": [{"role": "assistant", "content": "b", "weight": 100, "loss": 100}]})", "the product");
}

TEST(Record, ARowOfAnyFormatMayHaveAWeight) {
  for (const char* row :
       {R"("text": "a")", R"("prompt": "a", "completion": "b")", R"("question": "a", "answer": "b")",
        R"("instruction": "a", "output": "b")", R"("input_ids": [1, 2])",
        R"("messages": [{"role": "user", "content": "a"}])", R"("conversations": [{"from": "human", "value": "a"}])"}) {
    EXPECT_EQ(Read(std::string("{") + row + "}")->weight, kUnitWeight) << row;
    EXPECT_EQ(Read(std::string("{") + row + R"(, "weight": 0.25})")->weight, kUnitWeight / 4) << row;
    EXPECT_EQ(Read(std::string("{") + row + R"(, "weight": 0})")->weight, 0u) << row;
    EXPECT_EQ(Read(std::string("{") + row + R"(, "weight": null})")->weight, kUnitWeight) << row;
    ExpectError(std::string("{") + row + R"(, "weight": -1})", "'weight' is -1");
    ExpectError(std::string("{") + row + R"(, "weight": "much"})",
                "'weight' should be a number from 0 to 256 but is string");
  }
  EXPECT_EQ(AsConversation(*Read(R"({"question": "a", "answer": "b", "weight": 3})")).weight, 3 * kUnitWeight);
}

TEST(Record, ShareGptTurnsBecomeMessages) {
  ExpectMessages(
      R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "S"})",
      R"([{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  ExpectMessages(
      R"({"conversations": [{"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
                     {"from": "observation", "value": "3"}]})",
      R"([{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]},
                     {"role":"tool","content":"3"}])");
  ExpectError(R"({"conversations": [{"from": "alien", "value": "a"}]})", "unknown speaker \"alien\"");
  ExpectError(R"({"conversations": [{"from": "human"}]})", "turn 1: 'value' is missing");
  ExpectError(R"({"conversations": [{"from": "gpt", "value": null}]})", "turn 1: 'value' is null; give it a value");
  ExpectError(R"({"conversations": [{"role": "gpt", "content": null}]})", "turn 1: 'content' is null");
  ExpectError(R"({"conversations": [{"from": null, "value": "a"}]})", "turn 1: 'from' is null");
  ExpectError(R"({"conversations": [{"value": "a"}]})", "turn 1: 'from' is missing");
  ExpectError(R"({"conversations": [{"from": "function_call", "value": null}]})", "turn 1: 'value' is null");
  ExpectError(R"({"conversations": [{"from": "function_call", "value": "no json"}]})", "not valid JSON");
  ExpectError(R"({"conversations": [{"from": "function_call", "tool_calls": []}]})", "'value' is missing");
}

TEST(Record, ToolsAreNormalized) {
  const std::string expected = R"([{"type":"function","function":{"name":"f","parameters":{}}}])";
  for (const char* tools : {R"([{"type":"function","function":{"name":"f","parameters":{}}}])",
                            R"([{"name":"f","parameters":{}}])", R"("[{\"name\":\"f\",\"parameters\":{}}]")"}) {
    const auto record =
        Read(std::string(R"({"messages": [{"role": "user", "content": "a"}], "tools": )") + tools + "}");
    ASSERT_TRUE(record.ok()) << record.status().message();
    EXPECT_EQ(record->tools.dump(), expected);
  }
  EXPECT_TRUE(Read(R"({"messages": [{"role": "user", "content": "a"}], "tools": ""})")->tools.is_null());
  EXPECT_TRUE(Read(R"({"messages": [{"role": "user", "content": "a"}], "tools": []})")->tools.is_null());
}

TEST(Record, ConversationalPromptsSuperviseTheCompletionOnly) {
  const auto record = Read(R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
      {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}], "system": "S"})");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record->messages.size(), 5u);
  EXPECT_EQ(Supervised(*record), (std::vector<int>{0, 0, 0, 0, 1}));
}

TEST(Record, TokenRowsKeepLabelsAndDropPadding) {
  const auto record = Read(R"({"input_ids": [0, 5, 6, 7, 0], "labels": [-100, -100, 6, 7, -100],
                               "attention_mask": [0, 1, 1, 1, 0]})");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record->input_ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(record->labels, (std::vector<int32_t>{-100, 6, 7}));
  EXPECT_EQ(Read(R"({"input_ids": [5, 6]})")->labels, (std::vector<int32_t>{5, 6}));
  ExpectError(R"({"input_ids": [5, 6], "labels": [6, -100]})", "labels are not shifted");
  ExpectError(R"({"input_ids": [5, 6], "labels": [5]})", "equally long");
  ExpectError(R"({"input_ids": [5, -6]})", "not a token id");
  ExpectError(R"({"input_ids": [5, 99999999999]})", "not a token id");
  ExpectError(R"({"input_ids": [5, 18446744073709551615]})", "not a token id");
  ExpectError(R"({"input_ids": [5, 1.5]})", "list of integers");
  ExpectError(R"({"input_ids": "5"})", "list of integers");
}

TEST(Record, AListThatPythonPrintedIsNamedAsThat) {
  for (const char* list : {"[{'role': 'user', 'content': 'a'}]", R"( [ {'content': \"it's\"}\n {'role': 'user'}])"}) {
    for (const char* field : {"messages", "conversations"}) {
      ExpectError(std::string("{\"") + field + "\": \"" + list + "\"}",
                  std::string("'") + field + "' is a list as Python prints it, in single quotes, not JSON");
    }
    ExpectError(std::string("{\"prompt\": \"") + list + "\", \"completion\": \"" + list + "\"}",
                "save the table with df.to_json(");
    ExpectError(std::string(R"({"messages": [{"role": "user", "content": "a"}], "tools": ")") + list + "\"}",
                "tools is a list as Python prints it");
    ExpectError(std::string(R"({"conversations": [{"from": "function_call", "value": ")") + list + "\"}]}",
                "function call is a list as Python prints it");
  }
  ExpectError(R"({"messages": "[{\"role\": \"user\"}]"})", "should be a list of messages but is text");
  EXPECT_TRUE(Read(R"({"prompt": "['a', 'b'] is a list in", "completion": "Python"})").ok());
}

TEST(Record, ErrorsNameTheRowAndTheField) {
  ExpectError(R"({"prompt": "a", "completion": 3})", "'completion' should be text but is number");
  ExpectError(R"({"prompt": "a", "completion": null})", "'completion' is null");
  ExpectError(R"({"text": null, "id": 3})", "'text' is null");
  ExpectError(R"({"messages": [{"role": "model", "content": "a"}]})",
              "message 1: the role \"model\" is called \"assistant\" in messages");
  ExpectError(R"({"messages": [{"role": "user", "content": null}]})", "message 1: 'content' is null");
  ExpectError(R"({"prompt": "a", "answer": "b"})", "The row has 'prompt', 'answer'");
  ExpectError(R"({})", "The row has none");
  ExpectError(R"([])", "list");
  ExpectError(R"([{"instruction": "a"}])", ".json");
  ExpectError(R"(3)", "is number");
  ExpectError(R"({"chosen": [], "rejected": []})", "preference");
  ExpectError(R"({"messages": []})", "list of messages");
  ExpectError(R"({"messages": "hi"})", "list of messages");
  ExpectError(R"({"messages": [7]})", "message 1 should be an object");
  ExpectError(R"({"messages": [{"content": "a"}]})", "message 1: 'role' is missing");
  ExpectError(R"({"messages": [{"role": null, "content": "a"}]})", "message 1: 'role' is null");
  ExpectError(R"({"messages": [{"role": "user"}]})", "message 1: 'content' is missing");
  ExpectError(R"({"messages": [{"role": "user", "content": 3}]})", "'content' should be text");
  ExpectError(R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "x"}]}]})", "text only");
  ExpectError(R"({"messages": [{"role": "user", "content": "a"}], "system": 3})", "'system' should be text");
}

}  // namespace
}  // namespace temper::record_test
