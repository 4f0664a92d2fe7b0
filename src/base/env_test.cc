#include "base/env.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/faulty_env.h"
#include "base/mapped_file.h"
#include "base/scratch_folder.h"

namespace temper::env_test {
namespace {

void Write(const std::string& path, const std::string& text, WriteMode mode) {
  auto file = PosixEnv().OpenForWrite(path, mode);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE((*file)->Append(text).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Close().ok());
}

TEST(Env, WritesAnewOrAtTheEnd) {
  const ScratchFolder folder;
  const std::string path = folder / "file";
  Write(path, "long text", WriteMode::kAppend);
  Write(path, "short", WriteMode::kReplace);
  Write(path, "er", WriteMode::kAppend);
  EXPECT_EQ(*ReadTextFile(PosixEnv(), path), "shorter");
}

// In a folder of a disk and in one of memory, whose file systems differ in what they take; from memory that lies as a
// disk wants it and from memory that does not, in pieces short and long.
TEST(Env, WritesAroundThePageCacheTheSameBytes) {
  constexpr size_t kMost = 9'000'001;
  std::vector<char> memory(kMost + 2 * kDirectBlock);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i * 2654435761u >> 13);
  const size_t aligned = kDirectBlock - reinterpret_cast<uintptr_t>(memory.data()) % kDirectBlock;
  const auto short_pieces = [](size_t before) { return before * 7 % 600'011 + 1; };
  const auto long_pieces = [](size_t before) { return before % 2 ? size_t{1'048'575} : size_t{700'001}; };
  const ScratchFolder on_disk, in_memory(PosixEnv().IsFolder("/dev/shm") ? "/dev/shm" : on_disk.path());
  for (const ScratchFolder* folder : {&on_disk, &in_memory}) {
    const std::string path = *folder / "file";
    for (const size_t hurry_after : {size_t{0}, size_t{1}, size_t{5'000'000}, SIZE_MAX}) {
      for (const size_t total : {size_t{0}, size_t{1}, size_t{4096}, size_t{2} << 20, kMost}) {
        for (const bool apart : {false, true}) {
          const std::string_view text(memory.data() + aligned + apart, total);
          SCOPED_TRACE(
              fmt::format("{}: {} bytes, {} apart, hurry after {}", folder->path(), total, apart, hurry_after));
          auto file = PosixEnv().OpenForWrite(path, WriteMode::kDirect);
          ASSERT_TRUE(file.ok()) << file.status().message();
          size_t piece = total % 2 ? 1 : 2 * kDirectBlock;
          for (size_t at = 0; at < total; at += piece, piece = at % 3 ? short_pieces(piece) : long_pieces(piece)) {
            if (at >= hurry_after) (*file)->Hurry();
            ASSERT_TRUE((*file)->Append(text.substr(at, piece)).ok());
          }
          if (total % 2 == 1) {  // else Close alone
            ASSERT_TRUE((*file)->Sync().ok());
          }
          ASSERT_TRUE((*file)->Close().ok());
          EXPECT_TRUE(*ReadTextFile(PosixEnv(), path) == text);
        }
      }
    }
  }
}

TEST(Env, AFileThatCannotBeWrittenAtomicallyLeavesTheOldOneAndNothingBesideIt) {
  for (const char* fails : {"create", "append", "sync", "close", "rename"}) {
    const ScratchFolder folder;
    const std::string path = folder / "file";
    Write(path, "old", WriteMode::kReplace);
    FaultyEnv env(PosixEnv(), [&](const std::string& operation, const std::string&) {
      return operation == fails ? IoError("the disk is full") : OkStatus();
    });
    EXPECT_EQ(WriteTextFileAtomically(env, path, "new").message(), "the disk is full") << fails;
    EXPECT_EQ(*ReadTextFile(PosixEnv(), path), "old") << fails;
    EXPECT_EQ(*PosixEnv().List(folder.path()), std::vector<std::string>{"file"}) << fails;
  }
}

TEST(Env, AFolderThatIsReadAsAFileIsCalledAFolder) {
  const ScratchFolder folder;
  EXPECT_EQ(PosixEnv().OpenForRead(folder.path()).status().message(), folder.path() + " is a folder, not a file");
}

TEST(Env, ALockIsHeldOnceAndUntilItIsDestroyed) {
  const ScratchFolder folder;
  const std::string path = folder / "lock";
  auto first = PosixEnv().Lock(path);
  ASSERT_TRUE(first.ok());
  if (*first == nullptr) GTEST_SKIP() << "this file system has no locks";
  EXPECT_EQ(PosixEnv().Lock(path).status().code(), StatusCode::kInUse);
  first->reset();
  const auto second = PosixEnv().Lock(path);
  EXPECT_TRUE(second.ok());
  EXPECT_EQ(PosixEnv().Lock(folder / "no_folder/lock").status().code(), StatusCode::kNotFound);
}

// One process renames the file and lets go of its lock; another had opened it before.
TEST(Env, ALockIsOnTheFileThatHasTheName) {
  const ScratchFolder folder;
  const std::string path = folder / "file";
  if (const auto lock = PosixEnv().Lock(path); !lock.ok() || *lock == nullptr) GTEST_SKIP() << "no locks here";
  std::atomic<bool> done = false;
  std::atomic<int> renamed = 0;
  int locked = 0;
  std::thread other([&] {
    while (!done) {
      const auto lock = PosixEnv().Lock(path);
      if (!lock.ok()) continue;
      ++renamed;
      EXPECT_TRUE(PosixEnv().Rename(path, folder / "renamed").ok());
    }
  });
  for (int i = 0; i < 1'000'000 && (locked < 300 || renamed < 30); ++i) {
    const auto lock = PosixEnv().Lock(path);
    if (!lock.ok()) continue;
    ++locked;
    EXPECT_TRUE(PosixEnv().IsFile(path)) << i;
  }
  done = true;
  other.join();
  EXPECT_GE(locked, 300);
  EXPECT_GE(renamed, 30);
}

TEST(Env, TwoSpellingsOfAPathAreOneAbsolutePath) {
  EXPECT_EQ(AbsolutePath("/a/./b/../c/"), "/a/c");
  EXPECT_EQ(AbsolutePath("x/y"), AbsolutePath("./x//z/../y/"));
  EXPECT_TRUE(AbsolutePath("x").starts_with('/'));
  EXPECT_EQ(AbsolutePath("/"), "/");
}

TEST(MappedFile, IsReadWhileOtherProcessesReplaceTheFile) {
  const ScratchFolder folder;
  const std::string path = folder / "file", next = folder / "next";
  Write(path, "whole", WriteMode::kReplace);
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) {
      Write(next, "whole", WriteMode::kReplace);
      EXPECT_TRUE(PosixEnv().Rename(next, path).ok());
    }
  });
  for (int i = 0; i < 300; ++i) {
    const auto file = MappedFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    if (file.ok()) {
      EXPECT_EQ(std::string_view(reinterpret_cast<const char*>((*file)->bytes().data()), 5), "whole");
    }
  }
  done = true;
  other.join();
}

}  // namespace
}  // namespace temper::env_test
