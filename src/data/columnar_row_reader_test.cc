#include "data/columnar_row_reader.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "data/dataset.h"
#include "data/fake_tokenizer.h"
#include "data/records.h"
#include "data/weight_search.h"
#include "format/json.h"
#include "format/memory_env_for_test.h"
#include "format/parquet/parquet_file_for_test.h"

namespace temper::columnar_row_reader_test {
namespace {

const std::string kFolder = std::string(kProjectFolder) + "/tests/format/columnar/";

Result<Dataset> Load(MemoryEnv& env, const DataInput& input, const DatasetOptions& options = {}) {
  static const FakeTokenizer tokenizer;
  static const auto chat = ChatTemplate::FromSource(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "test", {});
  return LoadDataset(env, {input}, tokenizer, &*chat, options);
}

// A file of texts: columns by name, and their values.
std::string Texts(const std::vector<std::pair<std::string, std::vector<std::string>>>& columns) {
  std::vector<TestColumn> made;
  for (const auto& [name, values] : columns) {
    TestPage page{.values = static_cast<int64_t>(values.size())};
    for (const std::string& value : values) page.bytes += WithLength(value);
    made.push_back({.name = name, .pages = {page}});
  }
  return ParquetFile(made, static_cast<int64_t>(columns[0].second.size()));
}

TEST(ColumnarRows, TokensAreThoseOfTheSameRowsInJsonLines) {
  const OrderedJson all = OrderedJson::parse(*ReadTextFile(PosixEnv(), kFolder + "rows.json"));
  MemoryEnv env;
  env.files["talk.parquet"] = *ReadTextFile(PosixEnv(), kFolder + "talk.parquet");
  for (const OrderedJson& row : all["talk.parquet"]) env.files["talk.jsonl"] += DumpJson(row) + "\n";
  const auto from_parquet = Load(env, {"talk.parquet"}), from_lines = Load(env, {"talk.jsonl"});
  ASSERT_TRUE(from_parquet.ok()) << from_parquet.status().message();
  ASSERT_TRUE(from_lines.ok()) << from_lines.status().message();
  EXPECT_EQ(from_parquet->store.Fingerprint(), from_lines->store.Fingerprint());
  ASSERT_EQ(from_parquet->store.size(), 12);
  for (int64_t s = 0; s < 12; ++s) {
    const auto a = from_parquet->store.sample(s), b = from_lines->store.sample(s);
    EXPECT_EQ(a.tokens(), b.tokens()) << s;
    EXPECT_EQ(from_parquet->PlaceOf(s), fmt::format("talk.parquet row {}", s + 1));
    EXPECT_EQ(from_lines->PlaceOf(s), fmt::format("talk.jsonl line {}", s + 1));
  }
  EXPECT_FALSE(HasWeights(env, "talk.parquet"));
}

TEST(ColumnarRows, ABadRowIsNamedByItsNumberAndCanBeSkipped) {
  MemoryEnv env;
  env.files["d.parquet"] = Texts({{"prompt", {"a", "\xff", "c"}}, {"completion", {" b", " b", " d"}}});
  const auto refused = Load(env, {"d.parquet"});
  EXPECT_EQ(refused.status().message(),
            "d.parquet row 2: the text in column 'prompt' is not UTF-8; fix the row, or skip all bad rows "
            "(--skip_bad_rows)");
  const auto skipped = Load(env, {"d.parquet"}, {.skip_bad_rows = true});
  ASSERT_TRUE(skipped.ok()) << skipped.status().message();
  EXPECT_EQ(skipped->statistics.bad_rows, 1);
  EXPECT_EQ(skipped->PlaceOf(1), "d.parquet row 3");
  EXPECT_EQ(Load(env, {.path = "d.parquet", .max_rows = 1})->store.size(), 1);
}

TEST(ColumnarRows, ColumnsHaveOtherNamesAndThoseThatAreMissingAreNamed) {
  MemoryEnv env;
  env.files["d.parquet"] = Texts({{"frage", {"a"}}, {"antwort", {" b"}}});
  const auto read =
      Load(env, {.path = "d.parquet", .reading = {.columns = {{"prompt", "frage"}, {"completion", "antwort"}}}});
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(FakeTokenizer().Decode(read->store.sample(0).tokens(), false), "<s>a b</s>");
  const auto missing =
      Load(env, {.path = "d.parquet", .reading = {.columns = {{"prompt", "frage"}, {"completion", "antwrt"}}}});
  EXPECT_NE(missing.status().message().find("no row has the column 'antwrt'"), std::string::npos)
      << missing.status().message();
  EXPECT_NE(missing.status().message().find("did you mean 'antwort'?"), std::string::npos);
}

TEST(ColumnarRows, WeightsAreFoundInAColumnOfTheirName) {
  MemoryEnv env;
  const TestColumn text{.name = "text", .pages = {{.bytes = WithLength("a")}}};
  const std::string half("\0\0\0\x3f", 4), one("\0\0\x80\x3f", 4);
  const TestColumn weight{.name = "weight", .type = 4, .pages = {{.bytes = half}}};
  const TestColumn unit{.name = "weight", .type = 4, .pages = {{.bytes = one}}};
  env.files["half.parquet"] = ParquetFile({text, weight}, 1);
  env.files["one.parquet"] = ParquetFile({text, unit}, 1);
  EXPECT_TRUE(HasWeights(env, "half.parquet"));
  EXPECT_FALSE(HasWeights(env, "one.parquet"));
}

}  // namespace
}  // namespace temper::columnar_row_reader_test
