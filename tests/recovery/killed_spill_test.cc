// kill -9 while a run spills, at random moments: its folder is empty at once and its space is free for the next run.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "base/scratch_folder.h"
#include "disk/disk_tier.h"

namespace temper::killed_spill_test {
namespace {

constexpr Bytes kSpill = MiB(256);

// Reports through `begun` when everything is reserved, then writes until it is killed.
[[noreturn]] void SpillForEver(const std::string& folder, int begun) {
  const auto tier = DiskTier::Create(PosixEnv(), {folder, kSpill, {}});
  if (!tier.ok() || write(begun, "x", 1) != 1) _exit(1);
  const std::vector<std::byte> data(5'000'000, std::byte{1});
  for (int64_t at = 0;; at = (at + 5'000'001) % (kSpill.v - 5'000'000)) {
    if (!(*tier)->Write(Bytes{at}, data).ok()) _exit(2);
  }
}

TEST(KilledSpill, LeavesNothingInItsFolderAndItsSpaceFree) {
  const ScratchFolder scratch;
  const std::string& folder = scratch.path();
  const Bytes before = *PosixEnv().FreeSpace(folder);
  std::mt19937 random(7);
  constexpr int kKills = 20;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_ends[0]);
      SpillForEver(folder, pipe_ends[1]);
    }
    close(pipe_ends[1]);
    char byte;
    ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1) << "the child ended by itself";
    usleep(std::uniform_int_distribution<useconds_t>(0, 20'000)(random));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
    close(pipe_ends[0]);
    EXPECT_TRUE(PosixEnv().List(folder)->empty());
  }
  // If they had kept their space, 5 GiB would be missing now; other programs also write to this disk.
  EXPECT_GT(*PosixEnv().FreeSpace(folder), before - kSpill * (kKills / 2));
}

}  // namespace
}  // namespace temper::killed_spill_test
