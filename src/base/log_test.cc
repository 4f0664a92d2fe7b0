#include "base/log.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/for_each.h"
#include "base/progress_display.h"
#include "base/team.h"
#include "base/thread.h"

namespace temper::log_test {
namespace {

class Lines final : public LogSink {
 public:
  void Line(LogLevel, std::string_view line) override {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
  }
  void Progress(const ProgressState& state, bool) override { Line(LogLevel::kInfo, ProgressLine(state)); }
  std::vector<std::string> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

using Said = std::vector<std::string>;

TEST(Log, ALineGoesToTheInnermostScopeOfItsThread) {
  Lines outer, inner;
  testing::internal::CaptureStderr();
  {
    const LogScope a(outer);
    LogInfo("one");
    {
      const LogScope b(inner);
      LogWarning("two");
    }
    LogError("three");
    ProgressDisplay().Update({.what = "load", .step = 1, .total_steps = 2}, true);
    std::thread([] { LogInfo("of a thread that is not ours"); }).join();
  }
  LogInfo("outside");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "of a thread that is not ours\noutside\n");
  EXPECT_EQ(outer.Take(), (Said{"one", "three", "load 1/2"}));
  EXPECT_EQ(inner.Take(), Said{"two"});
}

// The threads of a team outlive the run that first used them: each start may be of another.
TEST(Log, WhatThreadsOfARunSayGoesWhereTheRunsLinesGo) {
  for (int run = 0; run < 2; ++run) {
    Lines lines;
    const LogScope scope(lines);
    StartThread([] { LogInfo("thread"); }).join();
    EXPECT_EQ(lines.Take(), Said{"thread"});
    RunTeam(3, [](TeamMember) { LogInfo("team"); });
    EXPECT_EQ(lines.Take(), (Said{"team", "team", "team"}));
    ForEach(3, 3, [](int64_t) { LogInfo("each"); });
    EXPECT_EQ(lines.Take(), (Said{"each", "each", "each"}));
    StartThread([] { StartThread([] { LogInfo("of a thread's thread"); }).join(); }).join();
    EXPECT_EQ(lines.Take(), Said{"of a thread's thread"});
  }
}

}  // namespace
}  // namespace temper::log_test
