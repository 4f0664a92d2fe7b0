#include "comm/nccl/nccl_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

namespace temper::nccl_watch_test {
namespace {

using Clock = std::chrono::steady_clock;

TEST(NcclWatch, LetsARankGoOnceTheRunHasEndedAndIsQuietWhereTheRankComesBack) {
  std::atomic<bool> ended = false;
  std::promise<std::string> aborted;
  std::atomic<bool> gave_up = false;
  {
    NcclWatch watch([&] { return ended ? IoError("rank 1 has died") : OkStatus(); },
                    [&](const Status& cause) {
                      aborted.set_value(cause.message());
                      return true;
                    },
                    [&](const Status&) { gave_up = true; });
    auto heard = aborted.get_future();
    EXPECT_EQ(heard.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout) << "the run goes on";
    ended = true;
    EXPECT_EQ(heard.get(), "rank 1 has died");
    watch.Dismiss();
  }
  EXPECT_FALSE(gave_up);
}

TEST(NcclWatch, GivesUpOnARankThatIsStuckInACall) {
  std::promise<std::string> gave_up;
  const auto begin = Clock::now();
  NcclWatch watch([] { return IoError("rank 1 has died"); }, [](const Status&) { return false; },
                  [&](const Status& cause) { gave_up.set_value(cause.message()); });
  EXPECT_EQ(gave_up.get_future().get(), "rank 1 has died");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST(NcclWatch, GivesUpWhereItsOwnAbortDoesNotReturn) {
  std::promise<void> gave_up;
  const auto given_up = gave_up.get_future().share();
  const auto begin = Clock::now();
  {
    NcclWatch watch([] { return IoError("rank 1 has died"); },
                    [given_up](const Status&) {
                      given_up.wait();
                      return true;
                    },
                    [&](const Status&) { gave_up.set_value(); });
    EXPECT_EQ(given_up.wait_for(std::chrono::seconds(15)), std::future_status::ready);
    if (given_up.wait_for(std::chrono::seconds(0)) != std::future_status::ready) gave_up.set_value();
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15));
}

TEST(NcclWatch, EndsAtOnceWithItsOwner) {
  const auto begin = Clock::now();
  {
    NcclWatch watch([] { return OkStatus(); }, [](const Status&) { return true; }, nullptr);
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace temper::nccl_watch_test
