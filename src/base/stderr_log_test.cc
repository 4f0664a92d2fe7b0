#include "base/stderr_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/progress_display.h"
#include "base/thread.h"

namespace temper::stderr_log_test {
namespace {

const ProgressState kState{.step = 120, .total_steps = 480, .loss = 2.34567};

TEST(StderrLog, PipeGetsOnlyLoggedStates) {
  testing::internal::CaptureStderr();
  StderrLog log(/*rich=*/false, /*unicode=*/false);
  {
    const LogScope scope(log);
    ProgressDisplay display;
    display.Update(kState, /*logged=*/true);
    display.Update(kState, /*logged=*/false);
    LogInfo("saved");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), ProgressLine(kState) + "\nsaved\n");
}

TEST(StderrLog, TerminalLineIsRedrawnAndEndsOnItsOwnLine) {
  testing::internal::CaptureStderr();
  ProgressState s = kState;
  StderrLog log(/*rich=*/true, /*unicode=*/false);
  {
    const LogScope scope(log);
    ProgressDisplay display;
    for (s.step = 1; s.step <= 1000; ++s.step) display.Update(s, true);
    LogInfo("saved checkpoint");
  }
  const std::string text = testing::internal::GetCapturedStderr();
  s.step = 1000;
  const std::string last = "\r\x1b[K" + ProgressBar(s, TerminalWidth() - 1, false) + "\n";
  EXPECT_TRUE(text.ends_with("\r\x1b[Ksaved checkpoint\n" + last)) << text;
  EXPECT_LT(std::count(text.begin(), text.end(), '\r'), 100) << "a fast run does not flood the terminal";
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

// A line of another thread (a checkpoint that could not be deleted) and the bar do not garble each other.
TEST(StderrLog, ALineReplacesTheBarWhichThenReappears) {
  const std::string clear = "\r\x1b[K";
  const std::string bar = clear + ProgressBar(kState, TerminalWidth() - 1, false);
  testing::internal::CaptureStderr();
  StderrLog log(/*rich=*/true, /*unicode=*/false);
  const LogScope scope(log);
  {
    ProgressDisplay display;
    display.Update(kState, true);
    StartThread([] {
      LogWarning("from elsewhere");
      LogInfo("and another");
    }).join();
    LogInfo("from here");
    StartThread([] { LogInfo("last"); }).join();
  }
  LogInfo("after");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            bar + clear + "\x1b[33mwarning: \x1b[0mfrom elsewhere\nand another\nfrom here\n" + bar + clear + "last\n" +
                bar + "\nafter\n");
}

TEST(StderrLog, WarningsAndErrorsHaveColoursOnATerminalAlone) {
  for (const bool rich : {false, true}) {
    testing::internal::CaptureStderr();
    StderrLog log(rich, /*unicode=*/false);
    log.Line(LogLevel::kInfo, "i");
    log.Line(LogLevel::kWarning, "w");
    log.Line(LogLevel::kError, "e");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              rich ? "i\n\x1b[33mwarning: \x1b[0mw\n\x1b[1;31merror: \x1b[0me\n" : "i\nwarning: w\nerror: e\n");
  }
}

TEST(StderrLog, OnlyTheFirstRankSaysMoreThanErrors) {
  testing::internal::CaptureStderr();
  StderrLog log(/*rich=*/false, /*unicode=*/false);
  log.SetRank(3, "rank 3");
  log.Line(LogLevel::kInfo, "info");
  log.Line(LogLevel::kWarning, "warning");
  log.Line(LogLevel::kError, "lost \x1b[2J");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: rank 3: lost \\x1b[2J\n");
}

}  // namespace
}  // namespace temper::stderr_log_test
