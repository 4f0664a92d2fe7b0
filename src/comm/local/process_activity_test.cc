#include "comm/local/process_activity.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

namespace temper::process_activity_test {
namespace {

constexpr std::chrono::milliseconds kWhile{400};
constexpr double kSeconds = 0.4;

// A child that does `work` for ever.
template <class Work>
class Child {
 public:
  explicit Child(const Work& work) : pid_(fork()) {
    while (pid_ == 0) work();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  bool Works() const {
    std::this_thread::sleep_for(kWhile / 4);
    const ProcessActivity before = ActivityOf(pid_);
    std::this_thread::sleep_for(kWhile);
    const ProcessActivity after = ActivityOf(pid_);
    EXPECT_TRUE(before.known && after.known);
    return after.WorkedSince(before, kSeconds);
  }

 private:
  const pid_t pid_;
};

TEST(ProcessActivity, ComputingIsWork) {
  volatile int x = 0;
  EXPECT_TRUE(Child([&] { x = x + 1; }).Works());
}

TEST(ProcessActivity, ReadingIsWork) {
  // A tenth of a millisecond of processor time in 20: known by the bytes alone.
  EXPECT_TRUE(Child([] {
                static const int file = open("/proc/self/exe", O_RDONLY);
                static char bytes[8192];
                if (pread(file, bytes, sizeof bytes, 0) < 0) _exit(1);
                usleep(20'000);
              }).Works());
}

TEST(ProcessActivity, SleepingIsNot) {
  EXPECT_FALSE(Child([] { pause(); }).Works());
  // Nor is waking up now and then.
  EXPECT_FALSE(Child([] { usleep(100'000); }).Works());
}

TEST(ProcessActivity, AStoppedProcessIsSeenToBe) {
  const Child child([] { usleep(1000); });
  EXPECT_FALSE(ActivityOf(child.pid()).stopped());
  kill(child.pid(), SIGSTOP);
  std::this_thread::sleep_for(kWhile / 4);
  EXPECT_TRUE(ActivityOf(child.pid()).stopped());
}

TEST(ProcessActivity, OneThreadCanBeLookedAtAlone) {
  const auto tid = static_cast<int>(syscall(SYS_gettid));
  bool worked = false;
  std::thread busy([&] {
    const auto own = static_cast<int>(syscall(SYS_gettid));
    const ProcessActivity before = ActivityOf(getpid(), own);
    const auto until = std::chrono::steady_clock::now() + kWhile;
    while (std::chrono::steady_clock::now() < until) continue;
    worked = ActivityOf(getpid(), own).WorkedSince(before, kSeconds);
  });
  const ProcessActivity before = ActivityOf(getpid(), tid);
  busy.join();
  EXPECT_TRUE(worked);
  EXPECT_FALSE(ActivityOf(getpid(), tid).WorkedSince(before, kSeconds));
}

TEST(ProcessActivity, OfNobodyIsUnknown) {
  EXPECT_FALSE(ActivityOf(0).known);
  EXPECT_FALSE(ActivityOf(0x3FFFFFFF).known);
}

}  // namespace
}  // namespace temper::process_activity_test
