#include "base/block_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/scratch_folder.h"

namespace temper::block_file_test {
namespace {

constexpr int64_t kBlock = BlockFile::kBlock;

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};
// Whole blocks, aligned to them.
std::unique_ptr<std::byte, FreeMemory> Blocks(int64_t n) {
  return std::unique_ptr<std::byte, FreeMemory>(
      static_cast<std::byte*>(std::aligned_alloc(kBlock, static_cast<size_t>(n * kBlock))));
}
std::span<std::byte> Span(const std::unique_ptr<std::byte, FreeMemory>& p, int64_t n) {
  return {p.get(), static_cast<size_t>(n * kBlock)};
}

void WriteText(const std::string& path, const std::string& text) {
  auto file = PosixEnv().OpenForWrite(path);
  ASSERT_TRUE(file.ok() && (*file)->Append(text).ok() && (*file)->Close().ok());
}
std::string Text(size_t n) {
  std::string text(n, '\0');
  for (size_t i = 0; i < n; ++i) text[i] = static_cast<char>(i * 2654435761u >> 11);
  return text;
}

class BlockFileTest : public testing::TestWithParam<bool> {};  // direct?
INSTANTIATE_TEST_SUITE_P(Both, BlockFileTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "around_the_cache" : "through_the_cache"; });

TEST_P(BlockFileTest, ReadsUpToAnEndThatIsNoWholeBlock) {
  const std::string text = Text(2 * kBlock + 1001);
  const ScratchFolder folder;
  const std::string path = folder / "file";
  WriteText(path, text);
  auto file = OpenPosixBlocks(path, GetParam());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->size(), Bytes{2 * kBlock + 1001});
  EXPECT_EQ((*file)->path(), path);
  const auto memory = Blocks(3);
  ASSERT_TRUE((*file)->ReadAt(0, Span(memory, 3)).ok());
  EXPECT_EQ(std::memcmp(memory.get(), text.data(), text.size()), 0);
  ASSERT_TRUE((*file)->ReadAt(kBlock, Span(memory, 2)).ok());
  EXPECT_EQ(std::memcmp(memory.get(), text.data() + kBlock, text.size() - kBlock), 0);
}

TEST_P(BlockFileTest, ATruncatedFileIsAnErrorThatNamesIt) {
  const ScratchFolder folder;
  const std::string path = folder / "file";
  WriteText(path, Text(4 * kBlock));
  auto file = OpenPosixBlocks(path, GetParam());
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto memory = Blocks(4);
  for (const int64_t size : {4 * kBlock - 1, 2 * kBlock, 2 * kBlock + 1, int64_t{0}}) {
    ASSERT_TRUE(PosixEnv().Truncate(path, size).ok());
    const Status read = (*file)->ReadAt(0, Span(memory, 4));
    EXPECT_EQ(read.code(), StatusCode::kCorrupt);
    EXPECT_NE(read.message().find(path + " ends at byte " + std::to_string(size)), std::string::npos) << read.message();
  }
}

TEST_P(BlockFileTest, AVersionTellsWritesTruncationAndOtherFiles) {
  const ScratchFolder folder;
  const std::string path = folder / "file", other = folder / "other";
  WriteText(path, Text(kBlock));
  WriteText(other, Text(kBlock));
  auto file = OpenPosixBlocks(path, GetParam());
  ASSERT_TRUE(file.ok()) << file.status().message();
  const FileVersion opened = *(*file)->Version();
  EXPECT_EQ(opened, (*PosixEnv().OpenForRead(path))->version());
  EXPECT_NE(opened, (*PosixEnv().OpenForRead(other))->version());
  usleep(20'000);  // the clock of files may tick at 10 ms
  WriteText(path, Text(kBlock));
  EXPECT_NE(*(*file)->Version(), opened) << "the same size, written again";
  ASSERT_TRUE(PosixEnv().Truncate(path, 5).ok());
  EXPECT_EQ((*file)->Version()->size, 5);
}

TEST_P(BlockFileTest, AnUnlinkedFileKeepsWhatIsWrittenAndIsInNoFolder) {
  const ScratchFolder scratch;
  const std::string& folder = scratch.path();
  auto file = CreatePosixUnlinked(folder, Bytes{3 * kBlock - 7}, GetParam());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->size(), Bytes{3 * kBlock});
  EXPECT_TRUE(PosixEnv().List(folder)->empty());
  const auto in = Blocks(2), out = Blocks(3);
  const std::string text = Text(2 * kBlock);
  std::memcpy(in.get(), text.data(), text.size());
  ASSERT_TRUE((*file)->WriteAt(kBlock, Span(in, 2)).ok());
  ASSERT_TRUE((*file)->ReadAt(0, Span(out, 3)).ok());
  EXPECT_EQ(std::memcmp(out.get() + kBlock, text.data(), text.size()), 0);
  for (int64_t i = 0; i < kBlock; ++i) ASSERT_EQ(out.get()[i], std::byte{0}) << "a block never written";
  EXPECT_TRUE(PosixEnv().List(folder)->empty());
}

TEST(BlockFile, SpaceOfAnUnlinkedFileIsTakenWhenItIsMade) {
  const std::string folder = testing::TempDir();
  const Bytes size = GiB(1), before = *PosixEnv().FreeSpace(folder);
  if (before < GiB(2)) GTEST_SKIP() << "only " << ToString(before) << " are free in " << folder;
  // Half of it is for what others write and delete meanwhile.
  auto file = PosixEnv().CreateUnlinked(folder, size);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_LT(*PosixEnv().FreeSpace(folder), before - size / 2);
  file->reset();
  EXPECT_GT(*PosixEnv().FreeSpace(folder), before - size / 2);
}

TEST(BlockFile, AFullDiskIsFoundWithItsNumbers) {
  const std::string folder = testing::TempDir();
  const Bytes too_much = *PosixEnv().FreeSpace(folder) * 4;
  const auto file = PosixEnv().CreateUnlinked(folder, too_much);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kIo);
  const std::string message = file.status().message();
  EXPECT_NE(message.find("cannot reserve " + ToString(too_much) + " in " + folder), std::string::npos) << message;
  EXPECT_NE(message.find("are free"), std::string::npos) << message;
}

TEST(BlockFile, WhatIsNoFileIsRefused) {
  EXPECT_EQ(PosixEnv().OpenBlocks("/no/such/file").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(PosixEnv().OpenBlocks(testing::TempDir()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PosixEnv().CreateUnlinked("/no/such/folder", KiB(4)).status().code(), StatusCode::kNotFound);
}

// Asked of mincore: a read, even one that may not wait, has the kernel read ahead.
TEST_P(BlockFileTest, LeavesNothingInThePageCache) {
  const ScratchFolder folder;
  const std::string path = folder / "file";
  WriteText(path, Text(256 * kBlock));
  const int fd = open(path.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(fsync(fd), 0);
  ASSERT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  auto file = OpenPosixBlocks(path, GetParam());
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto memory = Blocks(256);
  ASSERT_TRUE((*file)->ReadAt(0, Span(memory, 256)).ok());
  void* const mapped = mmap(nullptr, 256 * kBlock, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  ASSERT_NE(mapped, MAP_FAILED);
  std::vector<unsigned char> pages(static_cast<size_t>(256 * kBlock / sysconf(_SC_PAGESIZE)));
  ASSERT_EQ(mincore(mapped, 256 * kBlock, pages.data()), 0);
  munmap(mapped, 256 * kBlock);
  const auto cached = std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; });
  EXPECT_EQ(cached, 0);
}

}  // namespace
}  // namespace temper::block_file_test
