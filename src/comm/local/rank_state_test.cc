#include "comm/local/rank_state.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/local/host_memory.h"

namespace temper::rank_state_test {
namespace {

constexpr auto kNobody = std::optional<Lane>();

RankWaits Waiting(std::initializer_list<Lane> lanes, uint32_t awaited = 0) {
  RankWaits waits{.awaited = awaited};
  for (const Lane lane : lanes) waits.on[static_cast<size_t>(lane)] = 1;
  return waits;
}
uint32_t Awaiting(Lane lane) {
  return static_cast<uint32_t>(lane) + 1;
}

TEST(RankWaits, WhoIsWaitedForIsHeldUpByHisOwnWaitInThatLane) {
  EXPECT_EQ(Waiting({Lane::kInline}).HeldUpIn(Lane::kInline), Lane::kInline);
  EXPECT_EQ(Waiting({Lane::kBackground, Lane::kInline}).HeldUpIn(Lane::kBackground), Lane::kBackground);
  EXPECT_EQ(Waiting({Lane::kSends}).HeldUpIn(Lane::kReceives), Lane::kSends);
  EXPECT_EQ(Waiting({Lane::kReceives}).HeldUpIn(Lane::kSends), Lane::kReceives);
}

TEST(RankWaits, AWaitOfAnotherLaneHoldsNothingUpUnlessTheKernelsWaitForIt) {
  const Lane others[] = {Lane::kBackground, Lane::kSends, Lane::kReceives};
  for (const Lane lane : others) {
    EXPECT_EQ(Waiting({lane}).HeldUpIn(Lane::kInline), kNobody) << static_cast<int>(lane);
    EXPECT_EQ(Waiting({lane}, Awaiting(lane)).HeldUpIn(Lane::kInline), lane);
    EXPECT_EQ(Waiting({}, Awaiting(lane)).HeldUpIn(Lane::kInline), kNobody) << "it works";
  }
  EXPECT_EQ(Waiting({Lane::kSends}).HeldUpIn(Lane::kBackground), kNobody);
  EXPECT_EQ(Waiting({Lane::kInline}).HeldUpIn(Lane::kBackground), Lane::kInline)
      << "it issues what is to be done there";
  EXPECT_EQ(Waiting({}).HeldUpIn(Lane::kReceives), kNobody);
}

// A lane that waits may take a lot of time of the processor.
TEST(OwnActivity, IsThatOfThreadsThatDoNotWait) {
  const auto memory = HostMemory::Private(1);
  ASSERT_TRUE(memory.ok());
  const ControlBlock& control = (*memory)->control();
  control.rank(0).pid.store(getpid());
  std::atomic<bool> done{false};
  Sleeper& sleeper = control.sleeper(0, Lane::kBackground);
  std::thread lane([&] {
    sleeper.tid.store(static_cast<int32_t>(syscall(SYS_gettid)));
    sleeper.waiting_for.store(kElsewhere);
    while (!done) continue;
  });
  while (sleeper.waiting_for.load() == 0) std::this_thread::yield();
  const auto works = [&] {
    const OwnActivity before = OwnActivityOf(control, 0, /*processes=*/true);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return OwnActivityOf(control, 0, /*processes=*/true).MayHaveWorkedSince(before, 0.4);
  };
  EXPECT_FALSE(works()) << "while it waits";
  const OwnActivity waiting = OwnActivityOf(control, 0, /*processes=*/true);
  sleeper.waiting_for.store(0);
  EXPECT_TRUE(OwnActivityOf(control, 0, /*processes=*/true).MayHaveWorkedSince(waiting, 0)) << "it has come to an end";
  EXPECT_TRUE(works());
  done = true;
  lane.join();
}

}  // namespace
}  // namespace temper::rank_state_test
