#include "format/data_file_name.h"

#include <gtest/gtest.h>

namespace temper::data_file_name_test {
namespace {

TEST(DataFileName, EndingsCountInAnyCaseAndBehindACompression) {
  EXPECT_EQ(KindOfDataFile("a/b.jsonl"), DataFileKind::kJsonLines);
  EXPECT_EQ(KindOfDataFile("B.NDJSON.GZ"), DataFileKind::kJsonLines);
  EXPECT_EQ(KindOfDataFile("b.Json.zst"), DataFileKind::kJson);
  EXPECT_EQ(KindOfDataFile("b.csv"), DataFileKind::kCommaTable);
  EXPECT_EQ(KindOfDataFile("b.TSV.zstd"), DataFileKind::kTabTable);
  EXPECT_EQ(KindOfDataFile("README.MD"), DataFileKind::kText);
  EXPECT_EQ(KindOfDataFile("b.parquet"), DataFileKind::kParquet);
  EXPECT_EQ(KindOfDataFile("b.arrow"), DataFileKind::kArrow);
  for (const char* other : {"", "json", "b.jsonl.bak", "txt.d/b", "b.gz"}) {
    EXPECT_EQ(KindOfDataFile(other), DataFileKind::kOther) << other;
  }
}

}  // namespace
}  // namespace temper::data_file_name_test
