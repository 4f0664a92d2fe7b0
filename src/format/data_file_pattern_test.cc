#include "format/data_file_pattern.h"

#include <gtest/gtest.h>

#include "base/scratch_folder.h"

namespace temper::data_file_pattern_test {
namespace {

using Paths = std::vector<std::string>;

class DataFilePattern : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"b.jsonl", "a.csv.gz", "c.txt", "README.md", "dataset_info.json", "notes.pdf", ".d.jsonl", "x/train.jsonl",
          "y/train.jsonl", "y/test.jsonl", "z/data.parquet", "q/b.feather", "s/dataset_dict.json",
          "s/test/data-0.arrow", "s/test/state.json", "s/train/data-0.arrow", "[a].jsonl"}) {
      ASSERT_TRUE(PosixEnv().CreateFolders(FolderOf(folder_ / name)).ok());
      ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), folder_ / name, "x").ok());
    }
    ASSERT_TRUE(PosixEnv().CreateFolders(folder_ / "empty").ok());
  }
  // Below the folder.
  Paths Files(const std::string& pattern) const {
    const auto files = DataFilesOf(PosixEnv(), folder_ / pattern, "data");
    Paths out;
    for (const std::string& path : files.ok() ? *files : Paths{}) out.push_back(path.substr((folder_ / "").size()));
    return out;
  }
  std::string Error(const std::string& pattern) const {
    return DataFilesOf(PosixEnv(), folder_ / pattern, "data").status().message();
  }

  const ScratchFolder folder_;
};

TEST_F(DataFilePattern, AFolderStandsForItsDataFilesInTheOrderOfTheirNames) {
  EXPECT_EQ(Files("."), (Paths{"./[a].jsonl", "./a.csv.gz", "./b.jsonl", "./c.txt"}));
  EXPECT_EQ(Files("y/"), (Paths{"y/test.jsonl", "y/train.jsonl"}));
  EXPECT_EQ(Files("z"), Paths{"z/data.parquet"});
  EXPECT_EQ(Files("s"), (Paths{"s/test/data-0.arrow", "s/train/data-0.arrow"})) << "what save_to_disk writes";
}

TEST_F(DataFilePattern, APatternMatchesNamesOfFilesAndFolders) {
  EXPECT_EQ(Files("*.jsonl"), (Paths{"[a].jsonl", "b.jsonl"}));
  EXPECT_EQ(Files("[ab].*"), (Paths{"a.csv.gz", "b.jsonl"}));
  EXPECT_EQ(Files("*/train.jsonl"), (Paths{"x/train.jsonl", "y/train.jsonl"}));
  EXPECT_EQ(Files("?/t*.jsonl"), (Paths{"x/train.jsonl", "y/test.jsonl", "y/train.jsonl"}));
  EXPECT_EQ(Files("[a].jsonl"), Paths{"[a].jsonl"}) << "a file of that name";
  EXPECT_EQ(Files("**/t*.jsonl"), (Paths{"x/train.jsonl", "y/test.jsonl", "y/train.jsonl"}));
  EXPECT_EQ(Files("**/*.jsonl"), (Paths{"[a].jsonl", "b.jsonl", "x/train.jsonl", "y/test.jsonl", "y/train.jsonl"}))
      << "also in no folder";
  EXPECT_EQ(Files("s/**"), (Paths{"s/test/data-0.arrow", "s/train/data-0.arrow"}));
  EXPECT_EQ(Files("**/**/train.jsonl"), (Paths{"x/train.jsonl", "y/train.jsonl"})) << "each once";
}

TEST_F(DataFilePattern, OtherPathsStandForThemselves) {
  EXPECT_EQ(Files("README.md"), Paths{"README.md"});
  EXPECT_EQ(Files("missing.jsonl"), Paths{"missing.jsonl"});
  EXPECT_EQ(*DataFilesOf(PosixEnv(), "org/name", "data"), Paths{"org/name"});
}

TEST_F(DataFilePattern, NothingFoundSaysWhatWasLookedFor) {
  EXPECT_NE(Error("empty").find("empty: the folder has no data file, whose name ends in .jsonl,"), std::string::npos);
  EXPECT_NE(Error("q").find("1 other file is there"), std::string::npos) << Error("q");
  EXPECT_NE(Error("y/*.csv").find("no data file matches; looked in "), std::string::npos) << Error("y/*.csv");
  EXPECT_NE(Error("r/*.csv").find("there is no folder "), std::string::npos) << Error("r/*.csv");
  EXPECT_NE(Error("*.pdf").find("1 other file is there"), std::string::npos) << Error("*.pdf");
}

}  // namespace
}  // namespace temper::data_file_pattern_test
