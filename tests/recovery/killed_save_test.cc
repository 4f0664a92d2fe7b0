// kill -9 while saving, at random moments: checkpoints listed afterwards are complete, and no finished save is lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/state_for_test.h"

namespace temper::killed_save_test {
namespace {

constexpr int kKills = 60;
constexpr int64_t kRows = 20'000;  // 2.4 MB of state: a save takes some milliseconds

// Saves step after step from `first` on until it is killed. Reports each finished step through `done`.
[[noreturn]] void SaveForEver(const std::string& out, int64_t first, int done) {
  CheckpointWriter writer(PosixEnv(), {out, 3});
  for (int64_t step = first;; ++step) {
    const SampleState state(step, 1, kRows);
    if (!writer.Start(state.Contents()).ok() || !writer.WaitUntilRead().ok() || !writer.Finish().ok()) _exit(1);
    if (write(done, &step, sizeof step) != sizeof step) _exit(2);
  }
}

// How long a save takes on this disk, in microseconds.
int64_t MicrosecondsOfASave() {
  const ScratchFolder out;
  const SampleState state(1, 1, kRows);
  CheckpointWriter writer(PosixEnv(), {out.path(), {}});
  const auto begin = std::chrono::steady_clock::now();
  TEMPER_CHECK(writer.Start(state.Contents()).ok() && writer.Finish().ok());
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
}

TEST(KilledSave, LosesNothingThatWasFinished) {
  const ScratchFolder scratch;
  const std::string out = scratch.path() + "/out";
  // Updated continually: with changing load a single measurement would be wrong.
  int64_t longest_life = 3 * MicrosecondsOfASave();
  std::mt19937 random(7);
  int64_t newest = 0, mid_save = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, MiB(4)).ok());
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_ends[0]);
      SaveForEver(out, newest + 1, pipe_ends[1]);
    }
    close(pipe_ends[1]);
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int64_t>(0, longest_life)(random)));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
    int64_t step = 0, finished = newest;
    while (read(pipe_ends[0], &step, sizeof step) == sizeof step) finished = step;
    close(pipe_ends[0]);
    for (const std::string& name : Must(PosixEnv().List(out))) mid_save += name.ends_with(".tmp");

    const auto check = [&] {
      const auto listed = Must(ListCheckpoints(PosixEnv(), out));
      for (const CheckpointEntry& entry : listed) ExpectHolds(entry.path, SampleState(entry.step, 1, kRows));
      if (finished > 0) {
        ASSERT_FALSE(listed.empty());
        EXPECT_GE(listed.back().step, finished) << "a finished save is lost";
      }
    };
    check();
    ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, MiB(4)).ok());
    check();
    const auto listed = Must(ListCheckpoints(PosixEnv(), out));
    const int64_t now = listed.empty() ? 0 : listed.back().step;
    longest_life = now > newest ? std::max<int64_t>(longest_life * 7 / 8, 1000) : longest_life * 3 / 2;
    newest = now;
  }
  EXPECT_GT(newest, 0) << "no save finished";
  EXPECT_GT(mid_save, 0) << "no save was interrupted: the test proves nothing";
}

}  // namespace
}  // namespace temper::killed_save_test
