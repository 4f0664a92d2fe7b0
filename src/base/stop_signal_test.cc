#include "base/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace temper::stop_signal_test {
namespace {

// In processes of their own: handlers stay.
TEST(StopSignal, BeforeTheFirstStepItEndsTheProcessWithTheCodeThatMeansStopped) {
  EXPECT_EXIT((ExitOnStopSignals(75, /*waits=*/false), raise(SIGTERM)), testing::ExitedWithCode(75), "nothing to save");
  EXPECT_EXIT((ExitOnStopSignals(75, /*waits=*/false), raise(SIGINT)), testing::ExitedWithCode(130), "nothing to save");
}

TEST(StopSignal, AProcessThatFailsWhenAllRanksAreStoppedKeepsItsExitCode) {
  EXPECT_EXIT((ExitOnStopSignals(75, /*waits=*/true), raise(SIGTERM), _exit(2)), testing::ExitedWithCode(2), "^$");
}

TEST(StopSignal, ASignalThatCameShortlyBeforeTheFirstStepStopsTheRunThere) {
  EXPECT_EXIT((ExitOnStopSignals(75, /*waits=*/true), raise(SIGTERM), InstallStopHandler(false),
               _exit(StopSignal() == SIGTERM && alarm(0) == 0 ? 0 : 1)),
              testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace temper::stop_signal_test
