#include "data/table_reader.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "base/scratch_folder.h"
#include "data/dataset.h"
#include "data/fake_tokenizer.h"
#include "data/open_rows.h"
#include "data/records.h"
#include "data/weight_search.h"
#include "format/json.h"

namespace temper::table_reader_test {
namespace {

class TableReaderTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    TEMPER_CHECK(WriteTextFileAtomically(PosixEnv(), path, text).ok());
    return path;
  }
  // Each row as "line:text", or its error; the final error last.
  std::vector<std::string> Rows(const std::string& name, const std::string& text, Bytes max_row = MiB(1)) const {
    auto reader = OpenRows(PosixEnv(), Write(name, text), max_row);
    if (!reader.ok()) return {reader.status().message()};
    std::vector<std::string> rows;
    for (RawRow row;;) {
      const auto more = (*reader)->Next(row);
      if (!more.ok()) rows.push_back(more.status().message());
      if (!more.ok() || !*more) return rows;
      rows.push_back(row.error.ok() ? fmt::format("{}:{}", row.line, row.text) : row.error.message());
    }
  }
  void ExpectRows(const std::string& text, const std::vector<std::string>& wanted) const {
    const auto rows = Rows("t.csv", text);
    ASSERT_EQ(rows.size(), wanted.size()) << text << "\n" << rows.back();
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_NE(rows[i].find(wanted[i]), std::string::npos) << text << "\n" << rows[i] << "\n" << wanted[i];
    }
  }

  const ScratchFolder folder_;
};

// tests/data/make_table_goldens.py.
TEST_F(TableReaderTest, ReadsTablesAsPythonsCsvModule) {
  const auto goldens = ReadJsonFile(PosixEnv(), JoinPath(kProjectFolder, "tests/data/table_goldens.json"));
  ASSERT_TRUE(goldens.ok()) << goldens.status().message();
  EXPECT_GT(goldens->size(), 100u);
  for (const Json& golden : *goldens) {
    const auto text = golden["text"].get<std::string>();
    const auto rows = Rows(golden["name"].get<std::string>(), text);
    ASSERT_EQ(rows.size(), golden["rows"].size()) << text << "\n" << rows.back();
    for (size_t i = 0; i < rows.size(); ++i) {
      const Json row = Json::parse(rows[i].substr(rows[i].find(':') + 1), nullptr, false);
      EXPECT_EQ(row, golden["rows"][i]) << text << "\n" << rows[i];
    }
  }
}

TEST_F(TableReaderTest, NamesTheLineOfARowAndOfAMistake) {
  ExpectRows("a,b\n1,\"x\ny\"\n\n\n2,z\n", {R"(2:{"a": "1", "b": "x\ny"})", R"(6:{"a": "2", "b": "z"})"});
  ExpectRows("a,b\n1,2,3\n4,5\n", {"t.csv line 2: 3 cells where the header has 2 columns: put cells that hold a comma",
                                   R"(3:{"a": "4", "b": "5"})"});
  ExpectRows("a,b\n1\n", {"t.csv line 2: 1 cells where the header has 2 columns"});
  ExpectRows("a,b\n\"1\"x,2\n4,5", {"t.csv line 2: text follows the closing quote of cell 1", "3:"});
  ExpectRows("a,b\n1,2\n3,\"4\n5,6\n", {"2:", "t.csv line 3: the quoted cell that begins here never ends"});
  ExpectRows("a,b,a\n1,2,3\n", {"t.csv line 1: the header has the column 'a' twice"});
  ExpectRows("prompt;completion\n1;2\n", {"t.csv line 1: the header is one column, 'prompt;completion': separate"});
  ExpectRows("prompt\tcompletion\n1\t2\n", {"or name the file .tsv"});
  ExpectRows("\n\r\n", {"t.csv is empty"});
  std::string wide = "c0";
  for (int i = 1; i < 5000; ++i) wide += fmt::format(",c{}", i);
  ExpectRows(wide + "\n", {"a header of 5000 columns"});
  ExpectRows("a\n" + wide + "\nx\n", {"5000 cells where the header has 1", R"(3:{"a": "x"})"});
}

TEST_F(TableReaderTest, ListsAndWeightsAreValuesAndOtherCellsAreTexts) {
  ExpectRows("messages,weight,x\n\"[{\"\"role\"\": \"\"user\"\"}]\",0.50,[1]\n,,7\n[1,.25,\n",
             {R"(2:{"messages": [{"role": "user"}], "weight": 0.5, "x": "[1]"})", R"(3:{"x": "7"})",
              R"(4:{"messages": "[1", "weight": 0.25, "x": ""})"});
  ExpectRows("text,chat_template_kwargs\na,\"{\"\"x\"\": false}\"\nb,\n",
             {R"(2:{"text": "a", "chat_template_kwargs": {"x": false}})", R"(3:{"text": "b"})"});
  ExpectRows(",text,\n0,a,b\n", {R"(2:{"text": "a"})"});  // columns without a name
  ExpectRows("text,weight\na,heavy\nb,nan\n", {R"("weight": "heavy")", R"("weight": "nan")"});
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  ExpectRows("messages\n" + deep + "\n", {"t.csv line 2: JSON nested deeper than 256 levels"});
}

TEST_F(TableReaderTest, ALongRowIsBoundedAndCountedBeforeTheNextIsRead) {
  const auto rows =
      Rows("t.csv", "a,b\n\"" + std::string(5000, '\n') + "\",x\n" + std::string(5000, 'x') + ",1\n1,2\n", Bytes{1000});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NE(rows[0].find("line 2: a row longer than"), std::string::npos) << rows[0];
  EXPECT_NE(rows[1].find("line 5003: a row longer than"), std::string::npos) << rows[1];
  EXPECT_EQ(rows[2], R"(5004:{"a": "1", "b": "2"})");
}

// A row's length is that of its cells.
TEST_F(TableReaderTest, ARowOfExactlyTheLimitIsReadAndOneByteMoreIsAnError) {
  const std::string cell(600, 'x'), most(400, 'y'), more(401, 'y');
  for (const std::string end : {"", "\n", "\r\n"}) {
    const auto row = [&](const std::string& last) {
      const auto rows = Rows("t.csv", "a,b\n" + cell + ",\"" + last + "\"" + end, Bytes{1000});
      return rows.size() == 1 ? rows[0] : "not one row";
    };
    EXPECT_EQ(row(most), "2:{\"a\": \"" + cell + "\", \"b\": \"" + most + "\"}");
    EXPECT_NE(row(more).find("line 2: a row longer than"), std::string::npos) << row(more);
  }
}

TEST_F(TableReaderTest, BecomesTheSamplesOfTheSameRowsAsJson) {
  const std::string table = Write("d.csv", "prompt,completion,weight\n\"2 + 2,\n=\", 4,\nWho?,\"\"\"Me\"\".\",0.5\n");
  const std::string lines = Write("d.jsonl",
                                  "{\"prompt\": \"2 + 2,\\n=\", \"completion\": \" 4\"}\n"
                                  "{\"prompt\": \"Who?\", \"completion\": \"\\\"Me\\\".\", \"weight\": 0.5}\n");
  static const FakeTokenizer tokenizer;
  const auto a = LoadDataset(PosixEnv(), {{table}}, tokenizer, nullptr, {}),
             b = LoadDataset(PosixEnv(), {{lines}}, tokenizer, nullptr, {});
  ASSERT_TRUE(a.ok() && b.ok()) << a.status().message() << b.status().message();
  EXPECT_EQ(a->store.Fingerprint(), b->store.Fingerprint());
  EXPECT_EQ(a->files[0].format_place, "row 1 (line 2)");
  EXPECT_TRUE(HasWeights(PosixEnv(), table));
  EXPECT_FALSE(HasWeights(PosixEnv(), table, 1));
  EXPECT_FALSE(HasWeights(PosixEnv(), Write("none.csv", "text,loss_weight\na,0.5\n")));

  const auto refused =
      LoadDataset(PosixEnv(), {{Write("e.csv", "text,weight\na,1\nb,heavy\n")}}, tokenizer, nullptr, {});
  EXPECT_NE(refused.status().message().find("e.csv row 2 (line 3): 'weight' should be a number"), std::string::npos)
      << refused.status().message();
}

}  // namespace
}  // namespace temper::table_reader_test
