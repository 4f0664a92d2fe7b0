#include "checkpoint/weight_checksums.h"

#include <gtest/gtest.h>

#include "base/scratch_folder.h"

namespace temper::weight_checksums_test {
namespace {

class WeightChecksums : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), scratch_ / name, text).ok());
  }
  Status Verify(int part = 0, int parts = 1) const {
    return VerifyWeights(PosixEnv(), scratch_.path(), nullptr, part, parts);
  }
  void ExpectRefused(const std::string& part) const {
    const Status status = Verify();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }

  const ScratchFolder scratch_;
};

// `printf abc | xxhsum -H3`
constexpr char kOfAbc[] = "78af5f94892f3950";

TEST_F(WeightChecksums, AreThoseThatXxhsumPrints) {
  EXPECT_TRUE(Verify().ok()) << "a folder without any has nothing to be compared with";
  Write("a.safetensors", "abc");
  ASSERT_TRUE(WriteChecksums(PosixEnv(), scratch_.path(), {{"a.safetensors", kOfAbc}}).ok());
  EXPECT_EQ(*ReadTextFile(PosixEnv(), scratch_ / kChecksumsFile),
            std::string("XXH3 (a.safetensors) = ") + kOfAbc + "\n");
  EXPECT_TRUE(Verify().ok());
  Write("a.safetensors", "abd");
  ExpectRefused("a.safetensors is damaged");
}

TEST_F(WeightChecksums, OfSeveralFilesAreSharedAmongRanks) {
  for (const char* name : {"a", "b", "c"}) Write(name, "abc");
  ASSERT_TRUE(WriteChecksums(PosixEnv(), scratch_.path(), {{"a", kOfAbc}, {"b", kOfAbc}, {"c", kOfAbc}}).ok());
  Write("b", "abd");
  EXPECT_TRUE(Verify(0, 2).ok());
  EXPECT_FALSE(Verify(1, 2).ok());
  ExpectRefused("b is damaged");
  std::vector<int64_t> seen;  // of the first of two: 3 bytes of "a", 3 of "c"
  const auto progress = [&](Bytes done, Bytes total) { seen.insert(seen.end(), {done.v, total.v}); };
  EXPECT_TRUE(VerifyWeights(PosixEnv(), scratch_.path(), progress, 0, 2).ok());
  EXPECT_EQ(seen, (std::vector<int64_t>{3, 6, 6, 6}));
}

TEST_F(WeightChecksums, ReadNoOtherFolderAndNothingElse) {
  Write("a", "abc");
  const std::string sum = std::string(") = ") + kOfAbc;
  for (const std::string& line :
       {"XXH3 (../a" + sum, "XXH3 (/etc/passwd" + sum, "XXH3 (.a" + sum, "XXH3 (" + sum, std::string(kOfAbc) + "  a",
        std::string("XXH3 (a) ="), std::string("XXH3"), std::string("\x1b[2J"), std::string("\n")}) {
    Write(kChecksumsFile, line + "\n");
    ExpectRefused("line 1");
  }
  Write(kChecksumsFile, "XXH3 (missing" + sum + "\n");
  EXPECT_EQ(Verify().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace temper::weight_checksums_test
