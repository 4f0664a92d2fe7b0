// Ranks as processes that mpirun starts, as if on one host or on several. Skipped without MPI.
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "comm/mpi/mpi_communicator.h"
#include "comm/mpi/started_by_mpi.h"
#include "rank_program.h"
#include "rank_reports.h"

namespace temper::collectives::mpi_test {
namespace {

class Mpi : public RankProcesses {
 protected:
  void SetUp() override {
    if (!HasMpi()) GTEST_SKIP() << "this build has no MPI";
    if (std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // MPI's, not ours
  }

  struct Ended {
    int exit_code = -1;
    double seconds = 0;
    std::string output;  // of mpirun and all ranks
  };
  // `flags`: more flags of mpirun. Kills hanging processes after two minutes.
  Ended Run(int ranks, int ranks_per_host, const std::string& what, int culprit = -1, const std::string& flags = "") {
    ForgetWritten();
    const auto start = std::chrono::steady_clock::now();
    const std::string command = "timeout -k 5 120 mpirun -n " + std::to_string(ranks) +
                                " --oversubscribe --allow-run-as-root --bind-to none " + flags + " /proc/" +
                                std::to_string(getpid()) + "/exe --mpi " + std::to_string(ranks_per_host) + " " + what +
                                " " + std::to_string(culprit) + " " + out() + " 2>&1 </dev/null";
    Ended ended;
    std::FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return ended;
    char line[512];
    while (std::fgets(line, sizeof line, pipe) != nullptr) ended.output += line;
    const int status = pclose(pipe);
    ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return ended;
  }
};

struct Layout {
  int ranks, ranks_per_host;
};

// Ranks per host, of four: all on one, each alone, or two, which wait for each other in both ways.
std::vector<int> HostsFor(bool all) {
  return all ? std::vector<int>{0, 1, 2} : std::vector<int>{2};
}

TEST_F(Mpi, EveryCollectiveEqualsAPlainLoop) {
  for (const Layout& l : {Layout{1, 0}, {4, 0}, {3, 1}, {4, 2}, {5, 2}, {4, 3}}) {
    const Ended ended = Run(l.ranks, l.ranks_per_host, "conformance");
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    for (int r = 0; r < l.ranks; ++r) {
      EXPECT_EQ(Written(r), "") << "rank " << r << " of " << l.ranks << ", " << l.ranks_per_host << " per host";
    }
  }
}

// Open MPI's names for its memory can be predicted. A rank that opened such a file of somebody else would remove it in
// the end, or leave it longer than it was.
TEST_F(Mpi, MemoryThatSomebodyElseHasMadeForItIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of another user";
  char host[HOST_NAME_MAX + 1] = {};
  ASSERT_EQ(gethostname(host, sizeof host), 0);
  *std::find(host, host + HOST_NAME_MAX, '.') = 0;
  const auto name = [&](int family) { return fmt::format("/dev/shm/vader_segment.{}.0.{:x}0001.0", host, family); };
  constexpr int kFamilies = 1 << 16, kNobody = 65534;
  std::vector<int> made;
  for (int family = 0; family < kFamilies; ++family) {
    const int file = open(name(family).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (file < 0) continue;  // of another job
    EXPECT_EQ(fchmod(file, 0666), 0);
    EXPECT_EQ(fchown(file, kNobody, kNobody), 0);
    close(file);
    made.push_back(family);
  }
  EXPECT_GT(made.size(), 60'000u);
  EXPECT_EQ(Run(2, 0, "digest").exit_code, 0);
  int used = 0;
  for (const int family : made) {
    struct stat info;
    used += stat(name(family).c_str(), &info) != 0 || info.st_size != 0;
    unlink(name(family).c_str());
  }
  EXPECT_EQ(used, 0);
}

// As a rank leaves it that is killed while MPI starts.
TEST_F(Mpi, AFolderOfAKilledStartIsRemovedByTheNextUnlessSomebodyHoldsIt) {
  const std::string place = "/dev/shm/.temper-mpi-";
  const std::string dead = place + "dead00", held = place + "held00", fresh = place + "fresh0";
  const std::string used = place + "used00", open_to_all = place + "open00", model = "/dev/shm/temper-model0";
  const std::vector<std::string> all = {dead, held, fresh, used, open_to_all, model};
  for (const std::string& folder : all) {
    std::filesystem::remove_all(folder);
    ASSERT_EQ(mkdir(folder.c_str(), folder == open_to_all ? 0755 : 0700), 0);
    std::ofstream(folder + "/vader_segment.x") << "x";
    if (folder == used) std::ofstream(folder + "/model.safetensors") << "x";
    const timespec old[2] = {{.tv_sec = 1'000'000'000}, {.tv_sec = 1'000'000'000}};
    if (folder != fresh) {
      ASSERT_EQ(utimensat(AT_FDCWD, folder.c_str(), old, 0), 0);
    }
  }
  const int fd = open(held.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  EXPECT_EQ(Run(2, 0, "digest").exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(dead));
  for (const std::string& folder : {held, fresh, open_to_all, model}) {
    EXPECT_TRUE(std::filesystem::exists(folder + "/vader_segment.x")) << folder;
  }
  EXPECT_TRUE(std::filesystem::exists(used + "/model.safetensors")) << "a file that is not Open MPI's";
  for (const std::string& folder : all) std::filesystem::remove_all(folder);
  close(fd);
}

// A rank that is killed then leaves nothing behind, and nobody can open what ranks send each other.
TEST_F(Mpi, WhatRanksShareHasNoNameWhileTheyWork) {
  EXPECT_EQ(Run(2, 0, "segments").exit_code, 0);
  for (int r = 0; r < 2; ++r) {
    std::istringstream in(Written(r));
    int files = 0;
    for (std::string line; std::getline(in, line); ++files) {
      EXPECT_EQ(line.find("/dev/shm/.temper-mpi-"), 0u) << line;
      EXPECT_TRUE(line.ends_with(" (deleted)")) << line;
      EXPECT_FALSE(std::filesystem::exists(line.substr(0, line.rfind('/')))) << line;
    }
    EXPECT_GE(files, 2) << "rank " << r << ": its own memory, and the other's";
  }
}

TEST_F(Mpi, APlaceThatTheUserChoseIsKept) {
  const ScratchFolder place;
  const std::string option = "btl_vader_backing_directory";
  const auto check = [&](const std::string& flags) {
    const Ended ended = Run(2, 0, "segments", -1, flags);
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
    EXPECT_EQ(Written(0).find(place.path() + "/vader_segment."), 0u) << Written(0);
  };
  check("--mca " + option + " " + place.path());
  setenv(("OMPI_MCA_" + option).c_str(), place.path().c_str(), 1);
  check("");
  unsetenv(("OMPI_MCA_" + option).c_str());
}

TEST_F(Mpi, SumsHaveTheSameBitsOnEveryRankAndInEveryRun) {
  for (const int ranks_per_host : {1, 2}) {
    std::set<std::string> digests;
    for (int run = 0; run < 2; ++run) {
      EXPECT_EQ(Run(4, ranks_per_host, "digest").exit_code, 0);
      for (int r = 0; r < 4; ++r) digests.insert(Written(r));
    }
    EXPECT_EQ(digests.size(), 1u) << ranks_per_host << " per host";
  }
}

// With one rank per host sums are in the order of ranks, as on one host: the bits do not depend on the placement.
TEST_F(Mpi, OneRankPerHostGivesTheBitsOfOneHost) {
  EXPECT_EQ(Run(3, 0, "digest").exit_code, 0);
  const std::string together = Written(0);
  EXPECT_EQ(Run(3, 1, "digest").exit_code, 0);
  EXPECT_EQ(Written(0), together);
}

TEST_F(Mpi, AnAbortReachesAllWithRankAndCause) {
  for (const int ranks_per_host : {0, 1, 2}) {
    const Ended ended = Run(4, ranks_per_host, "abort", 2, "--enable-recovery");
    const Heard heard = HeardBy(4, 2);
    EXPECT_EQ(heard.messages, std::set<std::string>{"rank 2: the loss is NaN in step 20"}) << ended.output;
    EXPECT_EQ(heard.reporters, 0) << "rank 2 reports";
    EXPECT_LT(ended.seconds, 30);
  }
}

// mpirun must not kill the others: they notice by themselves.
TEST_F(Mpi, ARankThatDiesEndsAllOthers) {
  for (const std::string what : {"kill", "exit", "throw"}) {
    for (const int ranks_per_host : HostsFor(what == "kill")) {
      const Ended ended = Run(4, ranks_per_host, what, 2, "--enable-recovery");
      const Heard heard = HeardBy(4, 2);
      const std::string where = what + " " + std::to_string(ranks_per_host) + " per host: ";
      for (const std::string& m : heard.messages) EXPECT_EQ(m.find("rank 2 "), 0u) << where << m << ended.output;
      EXPECT_EQ(heard.reporters, 1) << where;
      EXPECT_LT(heard.slowest, 15) << where;
    }
  }
}

TEST_F(Mpi, ARankThatIsKilledEndsTheJob) {
  const Ended ended = Run(4, 1, "kill", 2);
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_LT(ended.seconds, 30);
  EXPECT_NE(ended.output.find("rank 2"), std::string::npos) << ended.output;
}

TEST_F(Mpi, AHangingRankIsNotWaitedForForever) {
  for (const std::string what : {"stop", "hang", "stages_stop", "stages_hang", "lanes_stop", "lanes_hang"}) {
    for (const int ranks_per_host : HostsFor(what == "stop")) {
      const Ended ended = Run(4, ranks_per_host, what, 2);
      const Heard heard = HeardBy(4, 2);
      const std::string where = what + " " + std::to_string(ranks_per_host) + " per host: ";
      for (const std::string& m : heard.messages) {
        if (m.empty()) continue;  // mpirun was faster
        EXPECT_EQ(m.find("rank 2 "), 0u) << where << m;
      }
      EXPECT_EQ(heard.reporters, 1) << where << ended.output;
      EXPECT_LT(ended.seconds, 30) << where;
    }
  }
}

TEST_F(Mpi, ARankThatLeavesEarlyEndsAllOthers) {
  for (const int ranks_per_host : {0, 1, 2}) {
    const Ended ended = Run(4, ranks_per_host, "leave", 2, "--enable-recovery");
    const Heard heard = HeardBy(4, 2);
    for (const std::string& m : heard.messages) {
      EXPECT_NE(m.find(" has left the run"), std::string::npos) << ranks_per_host << " per host: " << m << ended.output;
      EXPECT_EQ(m.find("rank 2 "), 0u) << m;
    }
    EXPECT_LT(ended.seconds, 30);
  }
}

TEST_F(Mpi, IsFoundInTheEnvironment) {
  EXPECT_FALSE(StartedByMpi());
  setenv("PMIX_RANK", "0", 1);
  EXPECT_TRUE(StartedByMpi());
  unsetenv("PMIX_RANK");
}

}  // namespace
}  // namespace temper::collectives::mpi_test
