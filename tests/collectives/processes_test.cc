// Ranks as processes of one host, started by Launch.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "comm/local/launch.h"
#include "rank_program.h"
#include "rank_reports.h"

namespace temper::collectives::processes_test {
namespace {

class Processes : public RankProcesses {
 protected:
  ~Processes() override { ExpectNothingInDevShm(); }

  LaunchSpec SpecOf(int ranks, const std::string& what, int culprit) const {
    return {.ranks = ranks, .arguments = {"collectives", what, std::to_string(culprit), out()}};
  }
  LaunchResult Run(int ranks, const std::string& what, int culprit = -1) {
    const auto result = Launch(SpecOf(ranks, what, culprit));
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : LaunchResult{};
  }
  // All get the same message.
  Heard HeardAlike(int ranks, int culprit) const {
    Heard heard = HeardBy(ranks, culprit);
    EXPECT_EQ(heard.messages.size(), 1u);
    return heard;
  }
};

TEST_F(Processes, EveryCollectiveEqualsAPlainLoop) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    const LaunchResult result = Run(ranks, "conformance");
    EXPECT_EQ(result.exit_code, 0) << result.message;
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(Written(r), "") << "rank " << r << " of " << ranks;
  }
}

TEST_F(Processes, SumsHaveTheSameBitsOnEveryRankAndInEveryRun) {
  std::set<std::string> digests;
  for (int run = 0; run < 3; ++run) {
    EXPECT_EQ(Run(4, "digest").exit_code, 0);
    for (int r = 0; r < 4; ++r) digests.insert(Written(r));
  }
  EXPECT_EQ(digests.size(), 1u);
}

// Otherwise each rank that gathers a model from the others would seem to use memory for all of it.
TEST_F(Processes, PeersMemoryDoesNotStayResidentAfterReading) {
  for (const int ranks : {2, 4}) {
    EXPECT_EQ(Run(ranks, "resident").exit_code, 0);
    for (int r = 0; r < ranks; ++r) {
      std::istringstream in(Written(r));
      int64_t after_gather = -1, after_reduction = -1;
      in >> after_gather >> after_reduction;
      for (const int64_t kib : {after_gather, after_reduction}) {
        EXPECT_GE(kib, 0) << Written(r);
        EXPECT_LT(kib, kResidentCase.v / 1024 / 16) << "rank " << r << " of " << ranks;
      }
    }
  }
}

TEST_F(Processes, AnAbortReachesAllWithRankAndCause) {
  const LaunchResult result = Run(4, "abort", 2);
  const Heard heard = HeardAlike(4, 2);
  EXPECT_EQ(heard.message(), "rank 2: the loss is NaN in step 20");
  EXPECT_EQ(heard.reporters, 0) << "rank 2 reports";
  EXPECT_LT(heard.slowest, 2);
  EXPECT_EQ(result.exit_code, kHeardOfFailure);
  EXPECT_EQ(result.message, "") << "the ranks can speak for themselves";
}

TEST_F(Processes, ARankThatIsKilledEndsAllOthersWithinSeconds) {
  for (const int culprit : {0, 3}) {
    const LaunchResult result = Run(4, "kill", culprit);
    const Heard heard = HeardAlike(4, culprit);
    EXPECT_EQ(heard.message().find(std::to_string(culprit)), 5u) << heard.message();
    EXPECT_NE(heard.message().find("was killed by signal 9 (Killed)"), std::string::npos) << heard.message();
    EXPECT_LT(heard.slowest, 3);
    EXPECT_EQ(result.exit_code, 128 + SIGKILL);
    EXPECT_EQ(result.message, heard.message());
    EXPECT_EQ(heard.reporters, 0) << "the caller of Launch reports";
  }
}

TEST_F(Processes, ARankThatExitsEndsAllOthersWithinSeconds) {
  const LaunchResult result = Run(3, "exit", 1);
  const Heard heard = HeardAlike(3, 1);
  EXPECT_NE(heard.message().find("ended with exit code 9"), std::string::npos) << heard.message();
  EXPECT_EQ(heard.message().find("rank 1 "), 0u) << heard.message();
  EXPECT_LT(heard.slowest, 3);
  EXPECT_EQ(result.exit_code, 9);
}

TEST_F(Processes, ARankThatThrowsEndsAllOthersWithinSeconds) {
  const LaunchResult result = Run(3, "throw", 0);
  const Heard heard = HeardAlike(3, 0);
  EXPECT_NE(heard.message().find("was killed by signal 6 (Aborted)"), std::string::npos) << heard.message();
  EXPECT_EQ(result.exit_code, 128 + SIGABRT);
}

TEST_F(Processes, ARankThatLeavesEarlyEndsAllOthersWithinSeconds) {
  const LaunchResult result = Run(3, "leave", 2);
  const Heard heard = HeardAlike(3, 2);
  EXPECT_NE(heard.message().find(" has left the run"), std::string::npos) << heard.message();
  EXPECT_EQ(heard.message().find("rank 2 "), 0u) << heard.message();
  EXPECT_EQ(heard.reporters, 1);
  EXPECT_EQ(result.exit_code, kHeardOfFailure);
}

TEST_F(Processes, AHangingRankIsNotWaitedForForever) {
  for (const std::string what : {"stop", "hang", "stages_stop", "stages_hang", "lanes_stop", "lanes_hang"}) {
    LaunchSpec spec = SpecOf(3, what, 1);
    spec.grace = Seconds{1};
    const auto result = Launch(spec);
    ASSERT_TRUE(result.ok());
    const Heard heard = HeardAlike(3, 1);
    EXPECT_NE(heard.message().find("gives no sign of life"), std::string::npos) << heard.message();
    EXPECT_NE(heard.message().find(what.ends_with("stop") ? "it is stopped" : "it sleeps"), std::string::npos);
    EXPECT_EQ(heard.message().find("rank 1 "), 0u) << heard.message();
    EXPECT_LT(heard.slowest, 5);
    EXPECT_EQ(heard.reporters, 1);
  }
}

// Like ranks that wait for each other on devices.
TEST_F(Processes, ALostRankIsFoundByRanksThatDoNotCommunicateWithIt) {
  for (const std::string what : {"kill", "stop"}) {
    LaunchSpec spec = SpecOf(3, "beside_" + what, 1);
    spec.grace = Seconds{1};
    ASSERT_TRUE(Launch(spec).ok());
    const Heard heard = HeardAlike(3, 1);
    EXPECT_EQ(heard.message().find("rank 1 "), 0u) << heard.message();
    EXPECT_NE(heard.message().find(what == "kill" ? "was killed by signal 9" : "(it is stopped)"), std::string::npos)
        << heard.message();
    EXPECT_LT(heard.slowest, 5) << "2 s of patience with one that is stopped";
    EXPECT_EQ(heard.reporters, what == "kill" ? 0 : 1);
  }
}

// One rank blocks in the background lane on a collective that the others
// run later; they block in the other lane on one that it runs later.
TEST_F(Processes, RanksThatWaitForEachOtherInDifferentLanesAreReported) {
  EXPECT_EQ(Run(3, "lanes_cross", 1).exit_code, kHeardOfFailure);
  const Heard heard = HeardAlike(3, -1);
  EXPECT_NE(heard.message().find("ranks wait for each other: "), std::string::npos) << heard.message();
  EXPECT_NE(heard.message().find("rank 1"), std::string::npos) << heard.message();
  EXPECT_LT(heard.slowest, 5);
  EXPECT_EQ(heard.reporters, 1);
}

// Current children of `parent`, from /proc.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::ifstream in("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  std::vector<pid_t> children;
  for (pid_t p; in >> p;) children.push_back(p);
  return children;
}
bool Exists(pid_t pid) {
  // A process that has ended and is not yet reaped by its new parent does not count.
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(in, text);
  const size_t at = text.rfind(')');
  return at != std::string::npos && text[at + 2] != 'Z';
}

// A launcher in its own process, whose ranks wait for a rank that sleeps.
class LauncherProcess {
 public:
  explicit LauncherProcess(const LaunchSpec& spec) {
    pid_ = fork();
    if (pid_ == 0) {
      signal(SIGINT, SIG_DFL);  // a shell's background jobs ignore it, and so would the ranks
      const auto result = Launch(spec);
      _exit(result.ok() ? result->exit_code : 99);
    }
    while (ranks_.size() < static_cast<size_t>(spec.ranks)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ranks_ = ChildrenOf(pid_);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  pid_t pid() const { return pid_; }
  int ExitCode() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool RanksEndWithin(std::chrono::seconds limit) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    for (const pid_t rank : ranks_) {
      while (Exists(rank)) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    return true;
  }

 private:
  pid_t pid_ = 0;
  std::vector<pid_t> ranks_;
};

TEST_F(Processes, SignalsReachTheRanks) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const LauncherProcess launcher(SpecOf(3, "steps", -1));
    kill(launcher.pid(), signal);
    EXPECT_EQ(launcher.ExitCode(), 128 + signal) << "ranks that do not handle the signal die of it";
    EXPECT_TRUE(launcher.RanksEndWithin(std::chrono::seconds(3)));
  }
}

TEST_F(Processes, RanksDoNotOutliveAKilledLauncher) {
  const LauncherProcess launcher(SpecOf(3, "steps", -1));
  kill(launcher.pid(), SIGKILL);
  EXPECT_EQ(launcher.ExitCode(), -SIGKILL);
  EXPECT_TRUE(launcher.RanksEndWithin(std::chrono::seconds(3)));
}

TEST_F(Processes, MoreRanksThanProcessorsWork) {
  const LaunchResult result = Run(12, "digest");
  EXPECT_EQ(result.exit_code, 0) << result.message;
  for (int r = 1; r < 12; ++r) EXPECT_EQ(Written(r), Written(0));
}

}  // namespace
}  // namespace temper::collectives::processes_test
