#include "base/team.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace temper::team_test {
namespace {

// Of all threads of this process.
double ProcessorSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

TEST(Team, VisitsEachItemOnceOnAnyNumberOfThreads) {
  for (int threads : {1, 2, 3, 7, 2}) {
    for (int64_t n : {0, 1, 2, 3, 8, 100}) {
      std::vector<std::atomic<int>> visits(n);
      ParallelFor(threads, n, [&](int64_t i) { ++visits[i]; });
      for (const auto& v : visits) EXPECT_EQ(v, 1);
    }
  }
}

TEST(Team, BlocksBeginAtMultiplesWhateverTheThreads) {
  for (int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> visits(1003);
    ParallelBlocks(threads, 1003, 64, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin % 64, 0);
      EXPECT_TRUE(end - begin == 64 || end == 1003);
      for (int64_t i = begin; i < end; ++i) ++visits[i];
    });
    for (const auto& v : visits) EXPECT_EQ(v, 1);
  }
}

// Plain memory: only the barriers keep writes and reads apart. From several threads at once, of which each has a team.
TEST(Team, MembersSeeWhatOthersWroteBeforeTheyMet) {
  const auto exchange = [](int threads) {
    for (int turn = 0; turn < 100; ++turn) {
      std::vector<int> wrote(static_cast<size_t>(threads)), saw(static_cast<size_t>(threads));
      RunTeam(threads, [&](TeamMember self) {
        EXPECT_EQ(self.size, threads);
        for (int round = 1; round <= 3; ++round) {
          wrote[static_cast<size_t>(self.index)] = round * (self.index + 1);
          self.Meet();
          int sum = 0;
          for (const int w : wrote) sum += w;
          saw[static_cast<size_t>(self.index)] += sum;
          self.Meet();
        }
      });
      for (const int s : saw) ASSERT_EQ(s, 6 * threads * (threads + 1) / 2) << threads << " threads, turn " << turn;
    }
  };
  std::vector<std::thread> callers;
  for (const int threads : {1, 2, 3, 5}) callers.emplace_back(exchange, threads);
  for (std::thread& caller : callers) caller.join();
}

TEST(Team, WithinATeamIsOfOne) {
  std::atomic<int> outer{0}, inner{0};
  RunTeam(3, [&](TeamMember) {
    ++outer;
    RunTeam(3, [&](TeamMember self) {
      EXPECT_EQ(self.size, 1);
      self.Meet();
      ++inner;
    });
  });
  EXPECT_EQ(outer, 3);
  EXPECT_EQ(inner, 3);
}

TEST(Team, SleepsThroughALongWait) {
  RunTeam(4, [](TeamMember) {});
  const double before = ProcessorSeconds();
  RunTeam(4, [](TeamMember self) {
    if (self.index == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    self.Meet();
  });
  EXPECT_LT(ProcessorSeconds() - before, 0.1) << "of the 0.9 s for which three wait";
}

// On one processor everyone waits for somebody who is not running: whoever spins to the end of its patience there takes
// 200 microseconds for each meeting.
TEST(Team, GivesWayToWhoItWaitsFor) {
  constexpr int kMeetings = 2000;
  double spent = 0;
  std::thread([&] {
    cpu_set_t first;
    ASSERT_EQ(sched_getaffinity(0, sizeof(first), &first), 0);
    for (int cpu = 0, kept = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &first) && kept++ > 0) CPU_CLR(cpu, &first);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(first), &first), 0);  // those that it starts inherit it
    const double before = ProcessorSeconds();
    RunTeam(2, [](TeamMember self) {
      for (int i = 0; i < kMeetings; ++i) self.Meet();
    });
    spent = ProcessorSeconds() - before;
  }).join();
  EXPECT_LT(spent, kMeetings * 100e-6);
}

}  // namespace
}  // namespace temper::team_test
