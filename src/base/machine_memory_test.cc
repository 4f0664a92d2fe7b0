#include "base/machine_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/scratch_folder.h"

namespace temper::machine_memory_test {
namespace {

constexpr char kMountsOfVersion1[] =
    "23 1 8:1 / / rw,relatime - ext4 /dev/vda rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
constexpr char kMountsOfVersion2[] =
    "23 1 8:1 / / rw,relatime - ext4 /dev/vda rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

// The files of /proc and /sys that a machine would show, in a folder.
class Machine : public testing::Test {
 protected:
  Machine() { Write("/proc/meminfo", "MemTotal:  16777216 kB\nMemFree:  1 kB\nMemAvailable:   8388608 kB\n"); }

  void Write(const std::string& path, const std::string& text) const {
    const std::string file = scratch_.path() + path;
    ASSERT_TRUE(PosixEnv().CreateFolders(FolderOf(file)).ok());
    ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), file, text).ok());
  }
  void WriteVersion1(const std::string& group, Bytes limit, Bytes used, Bytes of_files = {}) const {
    const std::string folder = "/sys/fs/cgroup/memory" + group;
    Write(folder + "/memory.limit_in_bytes", std::to_string(limit.v) + "\n");
    Write(folder + "/memory.usage_in_bytes", std::to_string(used.v) + "\n");
    // What the group has by itself, and with those below it.
    Write(folder + "/memory.stat", "inactive_file 4096\ntotal_active_file " + std::to_string(of_files.v / 2) +
                                       "\ntotal_inactive_file " + std::to_string(of_files.v - of_files.v / 2) + "\n");
  }
  void WriteVersion2(const std::string& group, const std::string& limit, Bytes used, Bytes of_files = {}) const {
    const std::string folder = "/sys/fs/cgroup" + group;
    Write(folder + "/memory.max", limit + "\n");
    Write(folder + "/memory.current", std::to_string(used.v) + "\n");
    Write(folder + "/memory.stat", "anon 4096\nfile 9999\ninactive_file " + std::to_string(of_files.v) +
                                       "\nactive_file 0\nslab_reclaimable 0\n");
  }
  AvailableMemory Find() const { return FindAvailableMemory(PosixEnv(), scratch_.path()); }
  void Expect(Bytes bytes, const std::string& cgroup) const {
    EXPECT_EQ(Find().bytes, bytes) << Find().ToString();
    EXPECT_EQ(Find().limit, cgroup.empty() ? "" : "memory cgroup " + cgroup);
  }

 private:
  const ScratchFolder scratch_;
};

TEST_F(Machine, WithoutCgroupsWhatTheKernelCallsAvailableIs) {
  Expect(GiB(8), "");
  EXPECT_EQ(Find().ToString(), "8.00 GiB");
}

TEST_F(Machine, ALimitOfVersion1CountsLessWhatIsUsedButForPagesOfFiles) {
  Write("/proc/self/mountinfo", kMountsOfVersion1);
  Write("/proc/self/cgroup", "9:name=systemd:/other\n4:memory:/jobs/7\n2:cpuacct,cpu:/x\n0::/unified\n");
  WriteVersion1("", Bytes{9223372036854771712}, GiB(7));
  WriteVersion1("/jobs", Bytes{9223372036854771712}, GiB(3));
  WriteVersion1("/jobs/7", GiB(2), MiB(1536), GiB(1));
  Expect(MiB(1536), "/jobs/7");
  EXPECT_EQ(Find().ToString(), "1.50 GiB (the limit of memory cgroup /jobs/7)");
}

TEST_F(Machine, TheTightestOfAGroupAndThoseAboveItCounts) {
  Write("/proc/self/mountinfo", kMountsOfVersion1);
  Write("/proc/self/cgroup", "4:memory:/jobs/7\n");
  WriteVersion1("/jobs/7", GiB(4), GiB(1));
  WriteVersion1("/jobs", GiB(6), GiB(5));  // others use the rest of it
  Expect(GiB(1), "/jobs");
  WriteVersion1("/jobs", GiB(6), GiB(1));
  Expect(GiB(3), "/jobs/7");
  WriteVersion1("", GiB(1), MiB(768));
  Expect(MiB(256), "/");
}

TEST_F(Machine, ALimitOfVersion2Counts) {
  Write("/proc/self/mountinfo", kMountsOfVersion2);
  Write("/proc/self/cgroup", "0::/user.slice/run.scope\n");
  WriteVersion2("/user.slice", "max", GiB(1));
  WriteVersion2("/user.slice/run.scope", std::to_string(GiB(3).v), GiB(2), GiB(1));
  Expect(GiB(2), "/user.slice/run.scope");
  Write("/sys/fs/cgroup/user.slice/run.scope/memory.high", std::to_string(GiB(2).v));
  Expect(GiB(1), "/user.slice/run.scope");
  WriteVersion2("/user.slice/run.scope", "max", GiB(2));
  Write("/sys/fs/cgroup/user.slice/run.scope/memory.high", "max");
  Expect(GiB(8), "");
}

// A container sees its part of the hierarchy only, and by its full path where it has no namespace of its own.
TEST_F(Machine, AContainersPartOfTheHierarchyIsFound) {
  Write("/proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  Write("/proc/self/cgroup", "4:memory:/docker/abc/job\n");
  WriteVersion1("", GiB(2), GiB(1));
  WriteVersion1("/job", GiB(4), GiB(1));
  Expect(GiB(1), "/");
  WriteVersion1("/job", MiB(1280), GiB(1));
  Expect(MiB(256), "/job");
  // Moved to a group that cannot be seen from here.
  Write("/proc/self/cgroup", "4:memory:/docker/abcdef\n");
  Expect(GiB(1), "/");
  Write("/proc/self/cgroup", "4:memory:/../other\n");
  Expect(GiB(1), "/");
}

TEST_F(Machine, AGroupThatUsesMoreThanItsLimitLeavesNothing) {
  Write("/proc/self/mountinfo", kMountsOfVersion2);
  Write("/proc/self/cgroup", "0::/job\n");
  WriteVersion2("/job", std::to_string(GiB(1).v), GiB(2));
  Expect(Bytes{}, "/job");
}

TEST_F(Machine, ALimitOfTheAddressSpaceCountsLessWhatIsUsedOfIt) {
  const auto limits = [&](const std::string& soft) {
    Write("/proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units\n"
          "Max address space         " +
              soft + "           unlimited            bytes\n");
  };
  const int64_t page = sysconf(_SC_PAGESIZE);
  Write("/proc/self/statm", std::to_string(GiB(1).v / page) + " 100 50 1 0 20 0\n");
  limits(std::to_string(GiB(3).v));
  EXPECT_EQ(Find().bytes, GiB(2));
  EXPECT_EQ(Find().ToString(), "2.00 GiB (the limit of ulimit -v)");
  limits(std::to_string(GiB(1).v - 1));
  EXPECT_EQ(Find().bytes, Bytes{});
  limits("unlimited");
  Expect(GiB(8), "");
}

TEST_F(Machine, FilesThatAreNotThereOrNotUnderstoodBoundNothing) {
  for (const std::string text : {"", "\n\n", "0::", "4:memory", "- - - - - - -", "35 31 0:32 / /x - cgroup"}) {
    Write("/proc/self/mountinfo", text);
    Write("/proc/self/cgroup", text);
    Expect(GiB(8), "");
  }
  Write("/proc/self/mountinfo", kMountsOfVersion2);
  Write("/proc/self/cgroup", "0::/job\n");
  Write("/sys/fs/cgroup/job/memory.max", "lots");
  Write("/sys/fs/cgroup/job/memory.current", "12");
  Expect(GiB(8), "");
}

TEST(ThisMachine, HasMemory) {
  EXPECT_GT(FindAvailableMemory().bytes, Bytes{});
  EXPECT_GT(ResidentMemory(), MiB(1));
  EXPECT_GE(PeakResidentMemory(), ResidentMemory() / 2);
}

}  // namespace
}  // namespace temper::machine_memory_test
