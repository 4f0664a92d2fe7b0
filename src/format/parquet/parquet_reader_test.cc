// Parquet files that are wrong, or larger than they look.
#include "format/parquet/parquet_reader.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <ctime>
#include <filesystem>

#include "base/project_folder_for_test.h"
#include "format/memory_env_for_test.h"
#include "format/parquet/parquet_file_for_test.h"

namespace temper::parquet_reader_test {
namespace {

using Strings = std::vector<std::string>;

// The rows of the file, with "!" before the number of its fault for one that has one; last the error, if there is one.
Strings Rows(const std::string& bytes, RowLimits limits = {}) {
  MemoryEnv env;
  env.files["f"] = bytes;
  auto reader = ParquetReader::Open(*env.OpenForRead("f"), limits);
  if (!reader.ok()) return {reader.status().message()};
  Strings rows;
  JsonRow row;
  for (;;) {
    const auto more = (*reader)->Next(row);
    if (!more.ok()) rows.push_back(more.status().message());
    if (!more.ok() || !*more) return rows;
    rows.push_back(row.fault == RowFault::kNone ? row.json : fmt::format("!{}", static_cast<int>(row.fault)));
  }
}

std::string Golden(const std::string& name) {
  return *ReadTextFile(PosixEnv(), std::string(kProjectFolder) + "/tests/format/columnar/" + name + ".parquet");
}

void ExpectError(const std::string& file, const std::string& part) {
  const Strings rows = Rows(file);
  ASSERT_FALSE(rows.empty());
  EXPECT_TRUE(rows.back().starts_with("f: ") && rows.back().find(part) != std::string::npos) << rows.back();
}

std::string PackedZstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
  return packed;
}

TEST(ParquetReader, ReadsAFileMadeByHand) {
  const TestPage texts{.values = 2, .bytes = WithLength("a") + WithLength("\"b\"")};
  EXPECT_EQ(Rows(ParquetFile({{.pages = {texts}}}, 2)), (Strings{R"({"text": "a"})", R"({"text": "\"b\""})"}));
  // A repeated column is a list. Levels: 0, 1, 0; and the second row is empty.
  const TestPage list{.values = 3,
                      .bytes = WithLength(std::string("\x03\x02", 2)) + WithLength(std::string("\x03\x03", 2)) +
                               WithLength("x") + WithLength("y")};
  EXPECT_EQ(Rows(ParquetFile({{.repetition = 2, .pages = {list}}}, 2)),
            (Strings{R"({"text": ["x", "y"]})", R"({"text": []})"}));
}

TEST(ParquetReader, EveryFileThatIsCutOffIsRefused) {
  const std::string whole = Golden("chat_none");
  for (size_t size = 0; size < whole.size(); ++size) {
    const Strings rows = Rows(whole.substr(0, size));
    ASSERT_EQ(rows.size(), 1u) << size;
    ASSERT_NE(rows[0].find("cut off"), std::string::npos) << rows[0];
  }
}

// Whatever is damaged, each read ends in rows or an error that names the file.
TEST(ParquetReader, NoDamagedByteIsAFault) {
  int errors = 0, files = 0;
  for (const char* name :
       {"chat_snappy", "nested_v2", "nested_encoded", "others_encoded", "small_pages", "flat_2.4_1.0"}) {
    const std::string whole = Golden(name);
    for (size_t at = 4; at < whole.size(); ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      const Strings rows = Rows(damaged);
      ++files;
      errors += !rows.empty() && rows.back().starts_with("f: ");
    }
  }
  EXPECT_GT(errors, files / 4);  // the rest is in texts, statistics and what nothing reads
}

TEST(ParquetReader, WhatContradictsItselfIsNamed) {
  const TestPage one{.bytes = WithLength("a")};
  const TestColumn good{.pages = {one}};
  const auto with = [&](auto change) {
    TestColumn column = good;
    change(column);
    return ParquetFile({column}, 1);
  };
  ExpectError(with([](TestColumn& c) { c.values = 2; }), "row group 0 has 1 rows, and its column 'text' 2 values");
  ExpectError(with([](TestColumn& c) { c.begin = 1'000'000; }), "at byte 1000000, and the file has ");
  ExpectError(with([](TestColumn& c) {
                c.begin = -5;
                c.begin = 0;
              }),
              "at byte 0, and the file has ");
  ExpectError(with([](TestColumn& c) { c.codec = 3; }), "packed with LZO, which is not read");
  ExpectError(with([](TestColumn& c) { c.codec = 77; }), "packed with codec 77, which Parquet does not know");
  ExpectError(with([](TestColumn& c) { c.type = 9; }), "the type 9, which Parquet does not know");
  ExpectError(with([](TestColumn& c) { c.pages[0].packed = 100'000; }), "no page begins at byte 4");
  ExpectError(with([](TestColumn& c) { c.pages[0].unpacked = 1000; }), "the page of 5 bytes at byte ");
  ExpectError(with([](TestColumn& c) { c.pages[0].encoding = 8; }), "a page of indices into a dictionary");
  ExpectError(with([](TestColumn& c) { c.pages[0].encoding = 5; }),
              "BYTE_ARRAY are in encoding 5, which is not for them");
  ExpectError(with([](TestColumn& c) { c.pages[0].encoding = 4; }), "encoding 4 (BIT_PACKED), which is not read");
  ExpectError(with([](TestColumn& c) { c.pages[0].bytes = "\xff\xff\xff\x7f"; }), "are damaged or too few");
  ExpectError(with([](TestColumn& c) {
                c.pages[0].values = 9;
                c.values = 1;
              }),
              "a page of 9 values at byte ");
  ExpectError(ParquetFile({good, good}, 1), "it has the column 'text' twice");
  ExpectError(ParquetFile({good, {.name = "b", .pages = {one}, .begin = 10}}, 1), "the pages of two columns overlap");
  ExpectError(ParquetFile({}, 0), "it has no columns");
  const std::string file = ParquetFile({good}, 1);
  ExpectError(file.substr(0, file.size() - 4) + "PARE", "it is encrypted");
  ExpectError(file.substr(0, file.size() - 8) + "\xff\xff\xff\x7fPAR1",
              "a footer of 2147483647 bytes, and the file has room");
}

TEST(ParquetReader, ARowWithTextThatIsNotUtf8IsOneBadRow) {
  const TestPage page{.values = 2, .bytes = WithLength("\xff") + WithLength("b")};
  EXPECT_EQ(Rows(ParquetFile({{.pages = {page}}}, 2)), (Strings{"!4", R"({"text": "b"})"}));
}

TEST(ParquetReader, ARowBeyondTheLimitsIsOneBadRow) {
  const RowLimits limits{.bytes = {100}, .values = 10, .parts = 8};
  const TestPage page{.values = 3, .bytes = WithLength("a") + WithLength(std::string(100, 'b')) + WithLength("c")};
  EXPECT_EQ(Rows(ParquetFile({{.pages = {page}}}, 3), limits), (Strings{R"({"text": "a"})", "!1", R"({"text": "c"})"}));
  // 20 elements in the first row: the levels of repetition are 0, then 19 times 1, then 0.
  const std::string repetitions = WithLength(std::string("\x02\x00\x26\x01\x02\x00", 6));
  const std::string definitions = WithLength(std::string("\x2a\x01", 2));
  const TestPage list{.values = 21, .bytes = repetitions + definitions + std::string(21 * 4, '\0')};
  EXPECT_EQ(Rows(ParquetFile({{.type = 1, .repetition = 2, .pages = {list}}}, 2), limits),
            (Strings{"!2", R"({"text": [0]})"}));
}

// What takes a few bytes in the file takes no time and memory either, or is refused.
TEST(ParquetReader, BombsAreRefusedInTime) {
  const auto start = std::clock();
  // A page that claims 900 MB, and one that has them.
  ExpectError(ParquetFile({{.pages = {{.bytes = PackedZstd("a"), .unpacked = 900'000'000}}, .codec = 6}}, 1),
              "is more than 64 times the file");
  // A row of 2^31 - 1 empty lists' elements: runs of levels.
  const std::string most("\xfe\xff\xff\xff\x0f", 5);
  const std::string levels = WithLength(std::string("\x02\x00", 2) + most + '\x01');
  const TestPage endless{
      .values = 0x7fffffff, .bytes = levels + WithLength(most + '\x01') + '\x00' + most, .encoding = 8};
  const TestPage word{.bytes = WithLength("w"), .dictionary = true};
  ExpectError(ParquetFile({{.repetition = 2, .pages = {word, endless}}}, 1), "has too many values");
  // 60 MiB of one letter in a text, in each of ten pages.
  const std::string text(60 << 20, 'a');
  TestPage page{.bytes = PackedZstd(WithLength(text)), .unpacked = static_cast<int64_t>(text.size()) + 4};
  ASSERT_LT(page.bytes.size(), 10'000u);
  const Strings rows = Rows(ParquetFile({{.pages = std::vector(4, page), .codec = 6}}, 4), {.bytes = MiB(1)});
  EXPECT_EQ(rows, (Strings{"!1", "!1", "!1", "!1"}));
  // In two columns they would be there at once.
  ExpectError(ParquetFile({{.pages = {page}, .codec = 6}, {.name = "b", .pages = {page}, .codec = 6}}, 1),
              "is more than 64 times the file");
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 60) << "of a processor; some 0.5 on a free one, 10 on a busy one with sanitizers";
}

}  // namespace
}  // namespace temper::parquet_reader_test
