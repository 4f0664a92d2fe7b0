// The readers of Parquet and Arrow against pyarrow (tests/format/make_columnar_goldens.py): each row is what
// to_pylist() gives.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "format/arrow/arrow_reader.h"
#include "format/json.h"
#include "format/parquet/parquet_reader.h"

namespace temper::columnar_golden_test {
namespace {

const std::string kFolder = std::string(kProjectFolder) + "/tests/format/columnar/";

Result<std::unique_ptr<ColumnarReader>> Open(const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(auto file, PosixEnv().OpenForRead(path));
  std::unique_ptr<ColumnarReader> reader;
  if (path.ends_with(".arrow")) {
    TEMPER_ASSIGN_OR_RETURN(reader, ArrowReader::Open(std::move(file), {}));
  } else {
    TEMPER_ASSIGN_OR_RETURN(reader, ParquetReader::Open(std::move(file), {}));
  }
  return reader;
}

// The rows of a file, in a list; a text is an error.
OrderedJson RowsOf(const std::string& name) {
  auto reader = Open(kFolder + name);
  if (!reader.ok()) return reader.status().message();
  OrderedJson rows = OrderedJson::array();
  JsonRow row;
  for (;;) {
    const auto more = (*reader)->Next(row);
    if (!more.ok()) return more.status().message();
    if (!*more) break;
    EXPECT_EQ(row.fault, RowFault::kNone) << name;
    rows.push_back(OrderedJson::parse(row.json));
  }
  EXPECT_LE((*reader)->bytes_read().v, static_cast<int64_t>(std::filesystem::file_size(kFolder + name)));
  return rows;
}

TEST(ColumnarGolden, RowsAreThoseOfPyarrow) {
  const auto text = ReadTextFile(PosixEnv(), kFolder + "rows.json");
  ASSERT_TRUE(text.ok());
  const OrderedJson expected = OrderedJson::parse(*text);
  ASSERT_GT(expected.size(), 20u);
  for (const auto& [name, rows] : expected.items()) {
    const OrderedJson got = RowsOf(name);
    ASSERT_EQ(got.is_array(), true) << name << ": " << got;
    ASSERT_EQ(got.size(), rows.size()) << name;
    // As texts: 1 and 1.0 are not the same.
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(got[i].dump(), rows[i].dump()) << name << " row " << i;
  }
}

TEST(ColumnarGolden, ThousandsOfRowsOfAFormula) {
  const OrderedJson rows = RowsOf("many.parquet");
  ASSERT_EQ(rows.size(), 3000u) << rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    OrderedJson expected = {{"id", i / 3 % 600}, {"text", nullptr}, {"labels", std::vector<int>(i % 4, 1)}};
    if (i % 7 != 0) expected["text"] = std::to_string(i % 300);
    ASSERT_EQ(rows[i].dump(), expected.dump()) << i;
  }
}

}  // namespace
}  // namespace temper::columnar_golden_test
