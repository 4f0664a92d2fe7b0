#include "base/env.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace temper {
namespace {

std::string Fresh(const std::string& name) {
  const std::string path = JoinPath(testing::TempDir(), "env_" + name);
  EXPECT_TRUE(PosixEnv().RemoveTree(path).ok());
  return path;
}

void Write(const std::string& path, const std::string& text, WriteMode mode) {
  auto file = PosixEnv().OpenForWrite(path, mode);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE((*file)->Append(text).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Close().ok());
}

TEST(Env, WritesAnewOrAtTheEnd) {
  const std::string path = Fresh("modes");
  Write(path, "long text", WriteMode::kAppend);
  Write(path, "short", WriteMode::kReplace);
  Write(path, "er", WriteMode::kAppend);
  EXPECT_EQ(*ReadTextFile(PosixEnv(), path), "shorter");
}

// In a folder of a disk and in one of memory, whose file systems differ in what they take.
TEST(Env, WritesAroundThePageCacheTheSameBytes) {
  for (const std::string& folder : {testing::TempDir(), std::string("/dev/shm")}) {
    if (!PosixEnv().IsFolder(folder)) continue;
    const std::string path = JoinPath(folder, "temper_env_direct");
    for (const size_t hurry_after : {size_t{0}, size_t{1}, size_t{5'000'000}, SIZE_MAX}) {
      for (const size_t total : {size_t{0}, size_t{1}, size_t{4096}, size_t{2} << 20, size_t{9'000'001}}) {
        SCOPED_TRACE(fmt::format("{}: {} bytes, hurry after {}", folder, total, hurry_after));
        std::string text(total, '\0');
        for (size_t i = 0; i < total; ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
        auto file = PosixEnv().OpenForWrite(path, WriteMode::kDirect);
        ASSERT_TRUE(file.ok()) << file.status().message();
        for (size_t at = 0, piece = 1; at < total; at += piece, piece = piece * 7 % 600'011 + 1) {
          if (at >= hurry_after) (*file)->Hurry();
          ASSERT_TRUE((*file)->Append(std::string_view(text).substr(at, piece)).ok());
        }
        if (total % 2 == 1) {  // else Close alone
          ASSERT_TRUE((*file)->Sync().ok());
        }
        ASSERT_TRUE((*file)->Close().ok());
        EXPECT_TRUE(*ReadTextFile(PosixEnv(), path) == text);
      }
    }
    ASSERT_TRUE(PosixEnv().RemoveFile(path).ok());
  }
}

TEST(Env, ALockIsHeldOnceAndUntilItIsDestroyed) {
  const std::string path = Fresh("lock");
  auto first = PosixEnv().Lock(path);
  ASSERT_TRUE(first.ok());
  if (*first == nullptr) GTEST_SKIP() << "this file system has no locks";
  EXPECT_EQ(PosixEnv().Lock(path).status().code(), StatusCode::kInvalidArgument);
  first->reset();
  const auto second = PosixEnv().Lock(path);
  EXPECT_TRUE(second.ok());
  EXPECT_EQ(PosixEnv().Lock(JoinPath(Fresh("no_folder"), "lock")).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace temper
