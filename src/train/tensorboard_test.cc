#include "train/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/scratch_folder.h"
#include "train/crc32c.h"

namespace temper {
namespace {

std::string Hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(c));
    out += digits;
  }
  return out;
}

TEST(Crc32c, HasThePublishedValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);            // the check value of every CRC catalogue
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(TensorBoard, RecordsHaveTheBytesOfTheFormat) {
  EXPECT_EQ(Hex(EventRecord(std::string(24, 'x')).substr(0, 12)), "1800000000000000a37f4b22");
  EXPECT_EQ(VersionEvent(0).size(), 24u);
  EXPECT_EQ(EventRecord(std::string(24, 'x')).size(), 24u + 16u);
}

TEST(TensorBoard, ScalarsHaveTheBytesOfTheFormat) {
  double wall_time = 0;
  const uint64_t bits = 0x41DA29B160400000;
  std::memcpy(&wall_time, &bits, sizeof(bits));
  EXPECT_EQ(Hex(ScalarEvent(wall_time, 10, "train/loss", 1.5f)),
            "0900004060b129da41"
            "100a"
            "2a13"
            "0a11"
            "0a0a747261696e2f6c6f7373"
            "150000c03f");
  EXPECT_EQ(Hex(ScalarEvent(wall_time, 300, "a", 0)),
            "0900004060b129da4110ac022a0a0a080a0161"
            "1500000000");
}

TEST(TensorBoard, TagsAreThoseOfTransformers) {
  EXPECT_EQ(TensorBoardTag("loss"), "train/loss");
  EXPECT_EQ(TensorBoardTag("learning_rate"), "train/learning_rate");
  EXPECT_EQ(TensorBoardTag("eval_loss"), "eval/loss");
  EXPECT_EQ(TensorBoardTag("test_loss"), "test/loss");
  EXPECT_EQ(TensorBoardTag("evaluation"), "train/evaluation");
}

TEST(TensorBoard, AResumedRunContinuesInTheNewestFolder) {
  const ScratchFolder folder;
  const std::string& output = folder.path();
  Env& env = PosixEnv();
  std::string first, second;
  {
    auto a = TensorBoardWriter::Create(env, output, 1.7e9);
    auto b = TensorBoardWriter::Create(env, output, 1.8e9);
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_TRUE((*b)->AddScalar("loss", 1, 2.5, 1.8e9).ok());
    first = (*a)->path();
    second = (*b)->path();
  }
  EXPECT_NE(FolderOf(first), FolderOf(second));
  auto c = TensorBoardWriter::Create(env, output, 1.9e9, /*resume_step=*/1);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(FolderOf((*c)->path()), FolderOf(second));
  const auto text = ReadTextFile(env, (*c)->path());
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, EventRecord(VersionEvent(1.9e9)) + EventRecord(SessionStartEvent(1.9e9, 2)));
  const auto before = ReadTextFile(env, second);
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(*before, EventRecord(VersionEvent(1.8e9)) + EventRecord(ScalarEvent(1.8e9, 1, "train/loss", 2.5f)));
}

TEST(TensorBoard, AnUnwritableFolderIsAnError) {
  const ScratchFolder folder;
  const std::string output = folder / "file";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), output, "").ok());
  EXPECT_FALSE(TensorBoardWriter::Create(PosixEnv(), output, 1.7e9).ok());
}

}  // namespace
}  // namespace temper
