#include "train/transfer_progress.h"

#include <gtest/gtest.h>

namespace temper::transfer_progress_test {
namespace {

// In a test stderr is captured in a pipe or a file, so lines are printed.
class TransferProgressTest : public testing::Test {
 protected:
  using Clock = TransferProgress::Clock;
  void SetUp() override { testing::internal::CaptureStderr(); }
  std::string Shown() { return testing::internal::GetCapturedStderr(); }
  TransferProgress Load() {
    return TransferProgress("load", [this] { return now_; });
  }
  Clock::time_point now_{};
};

TEST_F(TransferProgressTest, ShowsNothingForATransferWithinASecond) {
  TransferProgress load = Load();
  for (int i = 1; i <= 9; ++i) {
    now_ += std::chrono::milliseconds(100);
    load.Update(MiB(i), MiB(10));
  }
  now_ += std::chrono::seconds(5);  // the last piece took long, but there is nothing left to wait for
  load.Update(MiB(10), MiB(10));
  EXPECT_EQ(Shown(), "");
}

TEST_F(TransferProgressTest, IsALineEveryTenSecondsInAPipe) {
  TransferProgress load = Load();
  for (int i = 1; i <= 25; ++i) {
    now_ += std::chrono::seconds(1);
    load.Update(MiB(i), MiB(25));
  }
  EXPECT_EQ(Shown(),
            "load 1.00 MiB/25.00 MiB  ETA 24 s\n"
            "load 11.00 MiB/25.00 MiB  ETA 14 s\n"
            "load 21.00 MiB/25.00 MiB  ETA 4 s\n");
}

}  // namespace
}  // namespace temper::transfer_progress_test
