#include "data/column_map.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/scratch_folder.h"
#include "data/records.h"
#include "data/weight_search.h"

namespace temper::column_map_test {
namespace {

OrderedJson Applied(const RowColumns& columns, const char* row) {
  const ColumnMap map(columns);
  OrderedJson json = OrderedJson::parse(row);
  map.Apply(json);
  return json;
}

TEST(ColumnMap, FieldsAreReadFromTheirColumnsOnly) {
  EXPECT_EQ(Applied({{"prompt", "q"}, {"completion", "a"}}, R"({"q": "1", "a": "2", "id": 3})"),
            OrderedJson::parse(R"({"id": 3, "prompt": "1", "completion": "2"})"));
  // Names may be exchanged, and a field that has a column is not read under its own name.
  EXPECT_EQ(Applied({{"input", "output"}, {"output", "input"}}, R"({"input": "i", "output": "o"})"),
            OrderedJson::parse(R"({"input": "o", "output": "i"})"));
  EXPECT_EQ(Applied({{"system", "sys"}}, R"({"system": "other", "prompt": "p"})"),
            OrderedJson::parse(R"({"prompt": "p"})"));
}

TEST(ColumnMap, DotsLeadIntoObjectsAndLists) {
  EXPECT_EQ(Applied({{"answer", "a.text"}}, R"({"a": {"text": "x", "score": 1}, "b": 2})"),
            OrderedJson::parse(R"({"b": 2, "answer": "x"})"));
  EXPECT_EQ(Applied({{"answer", "answers.text.0"}}, R"({"answers": {"text": ["x", "y"]}})"),
            OrderedJson::parse(R"({"answer": "x"})"));
  // A column with a dot in its name goes before.
  EXPECT_EQ(Applied({{"answer", "a.text"}}, R"({"a": {"text": "x"}, "a.text": "y"})"),
            OrderedJson::parse(R"({"a": {"text": "x"}, "answer": "y"})"));
  EXPECT_EQ(Applied({{"answer", "a.b.c"}}, R"({"a": {"b.c": "z"}})"), OrderedJson::parse(R"({"answer": "z"})"));
}

TEST(ColumnMap, KeysOfMessagesMayHaveOtherNames) {
  EXPECT_EQ(Applied({{"messages", "chat"}, {"messages.role", "who"}, {"messages.content", "said.text"}},
                    R"({"chat": [{"who": "user", "said": {"text": "hi"}, "train": false}]})"),
            OrderedJson::parse(R"({"messages": [{"train": false, "role": "user", "content": "hi"}]})"));
  EXPECT_EQ(Applied({{"messages.role", "who"}}, R"([{"who": "user", "content": "hi"}])"),
            OrderedJson::parse(R"([{"content": "hi", "role": "user"}])"));
}

// Records of a file, or the first error.
struct Read {
  Status status;
  std::vector<Record> records;
  std::optional<RecordFormat> format;
};

Read ReadFile(const std::string& name, const std::string& text, const RowColumns& columns) {
  const ScratchFolder folder;
  EXPECT_TRUE(WriteTextFileAtomically(PosixEnv(), folder / name, text).ok());
  Read out;
  auto reader = RecordReader::Open(PosixEnv(), folder / name, {.columns = columns});
  out.status = reader.status();
  if (!reader.ok()) return out;
  out.format = (*reader)->format();
  RawRow row;
  while (*(*reader)->Next(row)) {
    auto record = (*reader)->Parse(row);
    if (!record.ok()) out.status = record.status();
    if (!record.ok()) return out;
    out.records.push_back(*std::move(record));
  }
  out.status = (*reader)->CheckColumns();
  return out;
}

TEST(ColumnMap, AFormatWhoseFieldsAreNamedGoesBeforeTheOthers) {
  const std::string row = R"({"messages": [{"role": "user", "content": "x"}], "body": "t"})";
  EXPECT_EQ(ReadFile("d.jsonl", row, {}).format, RecordFormat::kMessages);
  const Read text = ReadFile("d.jsonl", row, {{"text", "body"}});
  ASSERT_TRUE(text.status.ok()) << text.status.message();
  EXPECT_EQ(text.format, RecordFormat::kText);
  EXPECT_EQ(text.records[0].text, "t");
  EXPECT_EQ(text.records[0].unread, std::vector<std::string>{"messages"});
}

TEST(ColumnMap, CellsOfATableAreReadAsTheirFieldsAre) {
  const Read read = ReadFile("d.csv",
                             "chat,w,meta\n"
                             "\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"hi\"\"}, "
                             "{\"\"role\"\": \"\"assistant\"\", \"\"content\"\": \"\"yo\"\"}]\",0.5,"
                             "\"{\"\"rule\"\": \"\"be kind\"\"}\"\n",
                             {{"messages", "chat"}, {"weight", "w"}, {"system", "meta.rule"}});
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  ASSERT_EQ(read.records.size(), 1u);
  EXPECT_EQ(read.records[0].weight, kUnitWeight / 2);
  EXPECT_EQ(read.records[0].messages.size(), 3u);
  EXPECT_EQ(read.records[0].messages[0]["content"], "be kind");
}

TEST(ColumnMap, AColumnThatNoRowHasIsAnErrorWithTheNearest) {
  const std::string two = "{\"frage\": \"q\", \"antwort\": {\"text\": \"a\"}}\n{\"frage\": \"r\", \"antwort\": {}}\n";
  const auto error = [](const std::string& text, const RowColumns& columns) {
    const std::string message = ReadFile("d.jsonl", text, columns).status.message();
    return message.substr(message.find("d.jsonl"));
  };
  EXPECT_EQ(error(two, {{"prompt", "farge"}, {"completion", "antwort.text"}}),
            "d.jsonl: no row has the column 'farge' (columns: prompt=farge); the first has 'frage', 'antwort'; did you "
            "mean 'frage'?");
  EXPECT_EQ(error(two, {{"prompt", "frage"}, {"completion", "antwort.txt"}}),
            "d.jsonl: no row has the column 'antwort.txt' (columns: completion=antwort.txt); the first has 'frage', "
            "'antwort'; did you mean 'antwort.text'?");
  EXPECT_EQ(error("{\"messages\": [{\"from\": \"user\", \"content\": \"x\"}]}\n", {{"messages.role", "form"}}),
            "d.jsonl: no message has the column 'form' (columns: messages.role=form); the first has 'from', 'content'; "
            "did you mean 'from'?");
  // A row without a value that others have is a bad row, whose error says where fields are looked for.
  EXPECT_EQ(error(two, {{"prompt", "frage"}, {"completion", "antwort.text"}}),
            "d.jsonl line 2: 'completion' is missing; the row has 'antwort', 'prompt'. Columns are read as "
            "prompt=frage, completion=antwort.text. The file was read as prompt/completion because of its line 1");
}

TEST(ColumnMap, AnOptionalColumnMayBeInLaterRowsOnly) {
  std::string many;
  for (int i = 0; i < 40; ++i) many += "{\"prompt\": \"p\", \"completion\": \"c\"}\n";
  EXPECT_EQ(ReadFile("d.jsonl", many, {{"system", "rule"}}).status.code(), StatusCode::kInvalidArgument);
  const std::string with_rule = many + "{\"prompt\": \"p\", \"completion\": \"c\", \"rule\": \"r\"}\n";
  const Read read = ReadFile("d.jsonl", with_rule, {{"system", "rule"}});
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.records.back().system, "r");
  EXPECT_NE(ReadFile("d.jsonl", many, {{"completion", "answer"}}).status.message().find("among the first 32"),
            std::string::npos);
}

TEST(ColumnMap, WeightsAreFoundUnderOtherNames) {
  const ScratchFolder folder;
  const std::string path = folder / "d.jsonl";
  ASSERT_TRUE(
      WriteTextFileAtomically(PosixEnv(), path, "{\"text\": \"a\"}\n{\"text\": \"b\", \"importance\": 0.5}\n").ok());
  EXPECT_FALSE(HasWeights(PosixEnv(), path));
  EXPECT_TRUE(HasWeights(PosixEnv(), path, 2, {.columns = {{"weight", "importance"}}}));
  EXPECT_FALSE(HasWeights(PosixEnv(), path, 1, {.columns = {{"weight", "importance"}}}));
}

// The header of a table lists all columns: no row needs to be read.
TEST(ColumnMap, AColumnThatATablesHeaderLacksIsAnErrorAtOnce) {
  const ScratchFolder folder;
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), folder / "d.csv", "prompt,completion,sys\na,b,c\n").ok());
  const auto open = [&](const RowColumns& columns) {
    return RecordReader::Open(PosixEnv(), folder / "d.csv", {.columns = columns}).status();
  };
  EXPECT_NE(open({{"system", "syst"}}).message().find("has the column 'syst' (columns: system=syst)"),
            std::string::npos);
  EXPECT_NE(open({{"weight", "w.x"}}).message().find("has the column 'w.x'"), std::string::npos);
  EXPECT_TRUE(open({{"system", "sys"}}).ok());
}

}  // namespace
}  // namespace temper::column_map_test
