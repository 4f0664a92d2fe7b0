#include "data/row_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <utility>

#include "base/faulty_env.h"
#include "base/scratch_folder.h"
#include "data/open_rows.h"

namespace temper::row_reader_test {
namespace {

class RowReaderTest : public testing::Test {
 protected:
  const ScratchFolder folder_;

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    auto file = PosixEnv().OpenForWrite(path);
    EXPECT_TRUE(file.ok());
    EXPECT_TRUE((*file)->Append(text).ok() && (*file)->Close().ok());
    return path;
  }
  // Every row as "line:text"; errors as "line:!", final ones as "!message".
  std::vector<std::string> Rows(const std::string& path, Bytes max_row = RowReader::kMaxRow) {
    auto reader = OpenRows(PosixEnv(), path, max_row);
    if (!reader.ok()) return {"!" + reader.status().message()};
    layout_ = (*reader)->layout();
    std::vector<std::string> rows;
    RawRow row;
    for (;;) {
      const auto more = (*reader)->Next(row);
      if (!more.ok()) {
        rows.push_back("!" + more.status().message());
        return rows;
      }
      if (!*more) return rows;
      EXPECT_EQ(row.number, static_cast<int64_t>(rows.size()) + 1);
      rows.push_back(std::to_string(row.line) + ":" + (row.error.ok() ? row.text : "!"));
    }
  }
  using Strings = std::vector<std::string>;
  RowLayout layout_ = RowLayout::kLines;
};

TEST_F(RowReaderTest, CutsJsonLinesAndIgnoresBlankOnes) {
  EXPECT_EQ(Rows(Write("a.jsonl", "{\"a\":1}\n\n  \t\n{\"a\":2}\n{\"a\":3}")),
            (Strings{"1:{\"a\":1}", "4:{\"a\":2}", "5:{\"a\":3}"}));
  EXPECT_EQ(layout_, RowLayout::kLines);
}

TEST_F(RowReaderTest, AcceptsByteOrderMarkAndCrlf) {
  const auto rows = Rows(Write("bom.jsonl", "\xEF\xBB\xBF{\"a\":1}\r\n\r\n{\"a\":2}\r\n"));
  EXPECT_EQ(rows, (Strings{"1:{\"a\":1}\r", "3:{\"a\":2}\r"}));  // CR is white space to JSON
  EXPECT_EQ(Rows(Write("bom.json", "\xEF\xBB\xBF[\r\n{\"a\":1},\r\n{\"a\":2}\r\n]\r\n")),
            (Strings{"2:{\"a\":1}", "3:{\"a\":2}"}));
}

TEST_F(RowReaderTest, ABrokenLineCostsThatLineOnly) {
  EXPECT_EQ(Rows(Write("broken.jsonl", "{\"a\": [1\n{\"b\": \"x\n}}\n{\"c\":3}\n")),
            (Strings{"1:{\"a\": [1", "2:{\"b\": \"x", "3:}}", "4:{\"c\":3}"}));
}

TEST_F(RowReaderTest, CutsTheElementsOfAList) {
  EXPECT_EQ(Rows(Write("list.json", "[{\"a\":\"],[\\\"\"},\n [1,[2]], 7 ,\"s,\"\n]")),
            (Strings{"1:{\"a\":\"],[\\\"\"}", "2:[1,[2]]", "2:7", "2:\"s,\""}));
  EXPECT_EQ(layout_, RowLayout::kArray);
  EXPECT_EQ(Rows(Write("one_line.json", "[{\"a\":1},{\"a\":2}]")), (Strings{"1:{\"a\":1}", "1:{\"a\":2}"}));
  EXPECT_EQ(Rows(Write("none.json", "[]")), Strings{});
}

TEST_F(RowReaderTest, AListPerLineIsARowPerLine) {
  const Strings expected = {"1:[{\"role\":\"user\"}]", "2:[{\"role\":\"user\"}]"};
  EXPECT_EQ(Rows(Write("lists.json", "[{\"role\":\"user\"}]\n[{\"role\":\"user\"}]\n")), expected);
  EXPECT_EQ(Rows(Write("lists.jsonl", "[{\"role\":\"user\"}]\n")), Strings{expected[0]});
  EXPECT_EQ(layout_, RowLayout::kLines);
}

TEST_F(RowReaderTest, ReadsObjectsSpreadOverLines) {
  EXPECT_EQ(Rows(Write("pretty.json", "{\n \"a\": 1\n}\n{\n \"a\": 2 }")),
            (Strings{"1:{\n \"a\": 1\n}", "4:{\n \"a\": 2 }"}));
  EXPECT_EQ(layout_, RowLayout::kValues);
}

TEST_F(RowReaderTest, ReadsIndentedObjectsOfAFileNamedJsonl) {
  EXPECT_EQ(Rows(Write("a.jsonl", "{\n  \"a\": 1\n}\n{\n  \"a\": 2\n}\n")),
            (Strings{"1:{\n  \"a\": 1\n}", "4:{\n  \"a\": 2\n}"}));
  // A first row that was cut off is a broken line.
  EXPECT_EQ(Rows(Write("b.jsonl", "{\"a\":\n{\"a\": 2}\n")), (Strings{"1:{\"a\":", "2:{\"a\": 2}"}));
}

TEST_F(RowReaderTest, AListThatIsBrokenIsAFinalErrorNamingTheLine) {
  for (const auto& [text, hint] : std::vector<std::pair<std::string, std::string>>{
           {"[\n{\"a\":1},\n{\"a\":", "line 3: the row that begins here never ends"},
           {"[\n{\"a\":1}", "line 2: the file ends where ',' or ']'"},
           {"[\n{\"a\":1} {\"a\":2}]", "line 2: something else where ',' or ']'"},
           {"[\n{\"a\":1},,{\"a\":2}]", "line 2: ',' where a row should begin"},
           {"[\n{\"a\":1},]", "line 2: ']' where a row should begin"},
           {"[\n{\"a\":1}]\nmore", "line 3: text after the end of the list"}}) {
    const auto rows = Rows(Write("broken.json", text));
    ASSERT_FALSE(rows.empty());
    EXPECT_NE(rows.back().find(hint), std::string::npos) << text << "\n" << rows.back();
  }
}

TEST_F(RowReaderTest, NamesTheFormatOfOtherFiles) {
  for (const auto& [text, hint] :
       std::vector<std::pair<std::string, std::string>>{{"", "is empty"},
                                                        {" \n\n", "is empty"},
                                                        {"\xEF\xBB\xBF", "is empty"},
                                                        {"\x1f\x8b\x08 ", "the gzip data is damaged"},
                                                        {"PAR1....", "a Parquet file ends in its footer"},
                                                        {"\xff\xfe{", "UTF-16"},
                                                        {"a,b,c\n1,2,3\n", "neither a JSON object nor a list"}}) {
    const auto rows = Rows(Write("foreign.jsonl", text));
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_NE(rows[0].find(hint), std::string::npos) << rows[0];
    EXPECT_NE(rows[0].find("foreign.jsonl"), std::string::npos) << rows[0];
  }
  EXPECT_NE(Rows(Write("a.xlsx", "PK\x03\x04"))[0].find("a.xlsx is a spreadsheet: save it as CSV"), std::string::npos);
}

TEST_F(RowReaderTest, RowsTooLongTooDeepOrTooWideAreErrorsAndTheNextRowIsRead) {
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  std::string wide = "{";
  for (int i = 0; i < 5000; ++i) wide += "\"" + std::to_string(i) + "\":0,";
  wide += "\"z\":0}";
  const std::string longer = "{\"a\":\"" + std::string(70000, 'x') + "\"}";
  for (const std::string& bad : {deep, wide, longer}) {
    EXPECT_EQ(Rows(Write("bad.jsonl", bad + "\n{\"a\":1}\n"), KiB(64)), (Strings{"1:!", "2:{\"a\":1}"}));
    EXPECT_EQ(Rows(Write("bad.json", "[\n" + bad + ",\n{\"a\":1}]"), KiB(64)), (Strings{"2:!", "3:{\"a\":1}"}));
    EXPECT_EQ(Rows(Write("last.jsonl", bad), KiB(64)), Strings{"1:!"});
  }
}

// The limit counts the bytes of a value or of a line, without what ends it, wherever the row lies: also across the
// pieces that a compressed file is unpacked in, and at the end of a file without a line end.
TEST_F(RowReaderTest, ARowOfExactlyTheLimitIsReadAndOneByteMoreIsAnError) {
  constexpr int64_t kLimit = 300'000;  // more than the buffer
  const auto row = [](int64_t bytes) { return "{\"a\":\"" + std::string(static_cast<size_t>(bytes) - 8, 'x') + "\"}"; };
  const std::string most = row(kLimit), more = row(kLimit + 1), next = "{\"a\":1}";
  ASSERT_EQ(most.size(), static_cast<size_t>(kLimit));
  struct Case {
    std::string name, before, after;
    RowLayout layout;
    bool has_next;
    int line;
  };
  for (const Case& c : {Case{"first.jsonl", "", "\n" + next, RowLayout::kLines, true, 1},
                        {"last.jsonl", next + "\n", "", RowLayout::kLines, false, 2},
                        {"only.jsonl", "", "", RowLayout::kLines, false, 1},
                        {"values.json", "{\n\"a\":1}", next, RowLayout::kValues, true, 2},
                        {"value.json", "{\n\"a\":1}\n", "", RowLayout::kValues, false, 3},
                        {"list.json", "[" + next + ",", "," + next + "]", RowLayout::kArray, true, 1},
                        {"tail.json", "[" + next + ",\n", "]", RowLayout::kArray, false, 2}}) {
    for (const bool packed : {false, true}) {
      SCOPED_TRACE(c.name + (packed ? ".gz" : ""));
      const auto rows = [&](const std::string& text) {
        const std::string path = folder_ / (c.name + (packed ? ".gz" : ""));
        const gzFile file = gzopen(path.c_str(), packed ? "wb" : "wbT");  // T: as it is
        const std::string all = c.before + text + c.after;
        EXPECT_EQ(gzwrite(file, all.data(), static_cast<unsigned>(all.size())), static_cast<int>(all.size()));
        EXPECT_EQ(gzclose(file), Z_OK);
        auto found = Rows(path, Bytes{kLimit});
        EXPECT_EQ(layout_, c.layout);
        EXPECT_EQ(found.size(), size_t{1} + !c.before.empty() + c.has_next);
        if (!c.before.empty() && !found.empty()) found.erase(found.begin());
        found.resize(2);
        return found;
      };
      const std::string place = std::to_string(c.line) + ":";
      const auto whole = rows(most), cut = rows(more);
      EXPECT_TRUE(whole[0] == place + most) << whole[0].substr(0, 40);
      EXPECT_EQ(cut[0], place + "!");
      EXPECT_EQ(whole[1].ends_with(next), c.has_next) << whole[1];
      EXPECT_EQ(cut[1], whole[1]);
    }
  }
}

// Short in the file, they would take gigabytes once parsed.
TEST_F(RowReaderTest, RowsOfTooManyValuesAreErrorsAndTheNextRowIsRead) {
  const auto row = [](const std::string& value, int n) {
    std::string values = value + ",";
    const size_t size = values.size() * static_cast<size_t>(n);
    while (values.size() < size) values += values.substr(0, size - values.size());  // one by one takes seconds
    values.pop_back();
    return "{\"a\":[" + values + "]}\n";
  };
  const std::string next = "{\"a\":1}\n";
  for (const auto& [value, most] : {std::pair{"1", 4'000'000}, {"[]", 999'997}, {"{}", 999'997}, {"\"\"", 999'997}}) {
    const auto whole = Rows(Write("whole.jsonl", row(value, most) + next));
    ASSERT_EQ(whole.size(), 2u) << value;
    EXPECT_NE(whole[0], "1:!") << value;
    EXPECT_EQ(Rows(Write("more.jsonl", row(value, most + 1) + next)), (Strings{"1:!", "2:{\"a\":1}"})) << value;
    EXPECT_EQ(Rows(Write("more.json", "[" + row(value, most + 1) + "," + next + "]")), (Strings{"1:!", "2:{\"a\":1}"}))
        << value;
  }
}

TEST_F(RowReaderTest, RowsAcrossReadsOfTheFileAreWhole) {
  // Rows of growing length, 3 MB in all: every row crosses the 256 KiB buffer somewhere.
  std::string lines, list = "[";
  Strings expected;
  for (int i = 0; i < 1000; ++i) {
    const std::string row =
        "{\"a\":\"" + std::string(static_cast<size_t>(i * 6), 'a' + static_cast<char>(i % 26)) + "\"}";
    lines += row + "\r\n";
    list += (i ? "," : "") + row;
    expected.push_back(row);
  }
  const auto strip = [](Strings rows) {
    for (auto& row : rows) {
      row = row.substr(row.find(':') + 1);
      if (row.ends_with('\r')) row.pop_back();
    }
    return rows;
  };
  EXPECT_EQ(strip(Rows(Write("long.jsonl", lines))), expected);
  EXPECT_EQ(strip(Rows(Write("long.json", list + "]"))), expected);
}

TEST_F(RowReaderTest, AFailingReadIsAnError) {
  const std::string path = Write("fault.jsonl", std::string(600000, ' ') + "{\"a\":1}\n");
  int reads = 0;
  FaultyEnv env(PosixEnv(), [&](const std::string& op, const std::string&) {
    return op == "read" && ++reads == 3 ? IoError("disk on fire") : OkStatus();
  });
  const auto reader = OpenRows(env, path);
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.status().message(), "disk on fire");
  EXPECT_FALSE(OpenRows(PosixEnv(), "/nonexistent/x.jsonl").ok());
}

}  // namespace
}  // namespace temper::row_reader_test
