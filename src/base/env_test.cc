#include "base/env.h"

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
