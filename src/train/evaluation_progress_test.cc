#include "train/evaluation_progress.h"

#include <gtest/gtest.h>

namespace temper::evaluation_progress_test {
namespace {

// In a test stderr is captured in a pipe or a file, so lines are printed.
TEST(EvaluationProgress, IsALineEveryTenSecondsInAPipe) {
  testing::internal::CaptureStderr();
  EvaluationProgress::Clock::time_point now{};
  {
    ProgressDisplay display;
    EvaluationProgress progress(display, [&now] { return now; });
    for (int i = 0; i < 25; ++i) {
      progress.Update(i, 25);
      now += std::chrono::seconds(1);
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "eval row 10/25  ETA 15 s\neval row 20/25  ETA 5 s\n");
}

}  // namespace
}  // namespace temper::evaluation_progress_test
