#include "base/processors.h"

#include <gtest/gtest.h>

#include "base/scratch_folder.h"
#include "base/team.h"

namespace temper::processors_test {
namespace {

constexpr char kVersion1[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";
constexpr char kVersion2[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
// What a container sees: its own group is the root of the mount.
constexpr char kContainer[] = "30 23 0:26 /docker/7 /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n";

class MachineOf64 : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::string file = scratch_.path() + path;
    ASSERT_TRUE(PosixEnv().CreateFolders(FolderOf(file)).ok());
    ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), file, text).ok());
  }
  void Be(const std::string& mounts, const std::string& groups) const {
    Write("/proc/self/mountinfo", mounts);
    Write("/proc/self/cgroup", groups);
  }
  std::string Found(int allowed = 64) const { return FindProcessors(allowed, PosixEnv(), scratch_.path()).ToString(); }

 private:
  const ScratchFolder scratch_;
};

TEST_F(MachineOf64, WithoutQuotasGivesThoseThatTheProcessMayRunOn) {
  EXPECT_EQ(Found(), "64");
  Be(kVersion2, "0::/a\n");
  EXPECT_EQ(Found(), "64") << "no cpu.max";
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(Found(), "64");
  Be(kVersion1, "2:cpu,cpuacct:/a\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Found(), "64");
}

TEST_F(MachineOf64, AContainersQuotaCountsRoundedUp) {
  Be(kContainer, "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(Found(), "4 of 64 (cgroup / gives the time of 4)");
  Write("/sys/fs/cgroup/cpu.max", "350000 100000\n");
  EXPECT_EQ(Found(), "4 of 64 (cgroup / gives the time of 3.5)");
  Write("/sys/fs/cgroup/cpu.max", "5000 100000\n");
  EXPECT_EQ(Found(), "1 of 64 (cgroup / gives the time of 0.05)");
  EXPECT_EQ(Found(1), "1");
  Write("/sys/fs/cgroup/cpu.max", "9000000 100000\n");
  EXPECT_EQ(Found(), "64") << "more than there are";
}

TEST_F(MachineOf64, TheLeastQuotaOfAllGroupsAboveItCounts) {
  Be(kVersion2, "0::/pods/a/b\n");
  Write("/sys/fs/cgroup/pods/a/b/cpu.max", "800000 100000\n");
  Write("/sys/fs/cgroup/pods/cpu.max", "20000 10000\n");
  EXPECT_EQ(Found(), "2 of 64 (cgroup /pods gives the time of 2)");
  Write("/sys/fs/cgroup/pods/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(Found(), "2 of 64 (cgroup /pods/a gives the time of 1.5)");
}

TEST_F(MachineOf64, AQuotaOfVersion1CountsInTheHierarchyOfProcessorTime) {
  Be(kVersion1, "5:memory:/m\n4:cpuset:/s\n3:cpuacct,cpu:/docker/7\n");
  Write("/sys/fs/cgroup/cpuset/s/cpu.cfs_quota_us", "100000\n");  // not that of its time
  Write("/sys/fs/cgroup/cpuset/s/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Found(), "64");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.cfs_quota_us", "250000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Found(), "3 of 64 (cgroup /docker/7 gives the time of 2.5)");
}

TEST_F(MachineOf64, QuotasThatCannotBeReadDoNotBound) {
  Be(kVersion2, "0::/a\n");
  for (const char* text : {"", "100000", "0 100000", "-5 100000", "100000 0", "max", "a b"}) {
    Write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(Found(), "64") << text;
  }
}

TEST(Processors, OfThisProcessAreAtLeastOneAndNoMoreThanItMayRunOn) {
  EXPECT_GE(AvailableProcessors(), 1);
  EXPECT_LE(AvailableProcessors(), AffineProcessors());
}

}  // namespace
}  // namespace temper::processors_test
