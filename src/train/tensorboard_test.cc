#include "train/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/faulty_env.h"
#include "base/scratch_folder.h"
#include "train/crc32c.h"

namespace temper::tensorboard_test {
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

TEST(TensorBoard, AResumedRunContinuesInTheNewestFile) {
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
  const std::string before = EventRecord(VersionEvent(1.8e9)) + EventRecord(ScalarEvent(1.8e9, 1, "train/loss", 2.5f));
  const std::string resumed = EventRecord(SessionStartEvent(1.9e9, 2));
  const auto resume = [&] {
    auto c = TensorBoardWriter::Create(env, output, 1.9e9, /*resume_step=*/1);
    EXPECT_TRUE(c.ok());
    EXPECT_EQ((*c)->path(), second);
    return *ReadTextFile(env, second);
  };
  EXPECT_EQ(resume(), before + resumed);
  // However far a record had been written when the process was killed, and whatever else is no record.
  const std::string half = EventRecord(ScalarEvent(1.8e9, 2, "train/loss", 2.5f));
  std::string damaged = half;
  damaged[half.size() / 2] ^= 1;
  for (size_t size = 0; size <= half.size(); ++size) {
    const std::string rest = size < half.size() ? half.substr(0, size) : damaged;
    ASSERT_TRUE(WriteTextFileAtomically(env, second, before + rest).ok());
    EXPECT_EQ(resume(), before + resumed) << size;
  }
  EXPECT_EQ(env.List(FolderOf(second))->size(), 1u);
  // Nothing of it can be read.
  ASSERT_TRUE(WriteTextFileAtomically(env, second, "no events").ok());
  auto anew = TensorBoardWriter::Create(env, output, 2e9, /*resume_step=*/1);
  ASSERT_TRUE(anew.ok());
  EXPECT_EQ(FolderOf((*anew)->path()), FolderOf(second));
  EXPECT_EQ(*ReadTextFile(env, (*anew)->path()),
            EventRecord(VersionEvent(2e9)) + EventRecord(SessionStartEvent(2e9, 2)));
}

// What follows the damage can be saved by other readers, and TensorBoard reads the new file.
TEST(TensorBoard, AResumedRunLeavesADamagedFileAsItIs) {
  const ScratchFolder folder;
  Env& env = PosixEnv();
  const std::string path = (*TensorBoardWriter::Create(env, folder.path(), 1.8e9))->path();
  const std::string version = EventRecord(VersionEvent(1.8e9));
  const std::string record = EventRecord(ScalarEvent(1.8e9, 1, "train/loss", 2.5f));
  for (size_t at = 0; at < record.size(); ++at) {
    std::string damaged = version + record + record;
    damaged[version.size() + at] ^= 0x10;
    ASSERT_TRUE(WriteTextFileAtomically(env, path, damaged).ok());
    auto resumed = TensorBoardWriter::Create(env, folder.path(), 1.9e9, /*resume_step=*/1);
    ASSERT_TRUE(resumed.ok());
    EXPECT_EQ(Hex(*ReadTextFile(env, path)), Hex(damaged)) << at;
    EXPECT_EQ(Hex(*ReadTextFile(env, (*resumed)->path())),
              Hex(EventRecord(VersionEvent(1.9e9)) + EventRecord(SessionStartEvent(1.9e9, 2))));
    ASSERT_TRUE(env.RemoveFile((*resumed)->path()).ok());
  }
}

TEST(TensorBoard, AFullDiskLosesTheRecordsThatItMetAndNoOthers) {
  const ScratchFolder folder;
  bool full = false;
  FaultyEnv env(PosixEnv(), [&](const std::string& operation, const std::string&) {
    return full && (operation == "append" || operation == "truncate") ? IoError("the disk is full") : OkStatus();
  });
  auto writer = TensorBoardWriter::Create(env, folder.path(), 1.7e9);
  ASSERT_TRUE(writer.ok());
  std::string expected = EventRecord(VersionEvent(1.7e9));
  for (int64_t step = 1; step <= 5; ++step) {
    full = step == 2 || step == 3;
    EXPECT_EQ((*writer)->AddScalar("loss", step, 2.5, 1.7e9).ok(), !full);
    if (!full) expected += EventRecord(ScalarEvent(1.7e9, step, "train/loss", 2.5f));
  }
  EXPECT_EQ(Hex(*ReadTextFile(env, (*writer)->path())), Hex(expected));
}

TEST(TensorBoard, AnUnwritableFolderIsAnError) {
  const ScratchFolder folder;
  const std::string output = folder / "file";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), output, "").ok());
  EXPECT_FALSE(TensorBoardWriter::Create(PosixEnv(), output, 1.7e9).ok());
}

}  // namespace
}  // namespace temper::tensorboard_test
