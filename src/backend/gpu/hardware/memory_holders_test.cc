#include "backend/gpu/hardware/memory_holders.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/project_folder_for_test.h"

namespace temper::gpu::memory_holders_test {
namespace {

const std::string kLibrary = std::string(kBuildFolder) + "/test_nvml/libnvidia-ml.so.1";
constexpr char kBus[] = "0000:19:00.0";

std::vector<MemoryHolder> HoldersWhere(const std::string& processes) {
  setenv("TEST_NVML", processes.c_str(), 1);
  std::vector<MemoryHolder> holders = HoldersOfMemory(kBus, kLibrary.c_str());
  unsetenv("TEST_NVML");
  return holders;
}

TEST(MemoryHolders, AreTheOtherProcessesByWhatTheyHold) {
  const std::string own = std::to_string(getpid()) + ":500", parent = std::to_string(getppid());
  const auto holders = HoldersWhere("3999999:1048576 " + own + " " + parent + ":2147483648 3999998:-1");
  ASSERT_EQ(holders.size(), 2u) << "neither this process nor one of which nothing is known";
  EXPECT_EQ(holders[0].pid, getppid());
  EXPECT_NE(holders[0].name, "");
  EXPECT_EQ(holders[0].memory, GiB(2));
  EXPECT_EQ(DescribeHolders(holders),
            holders[0].name + " (process " + parent + ") holds 2.00 GiB, and 1 more 1.00 MiB");
  EXPECT_EQ(DescribeHolders({holders[1]}), "process 3999999 holds 1.00 MiB") << "one that has ended meanwhile";
}

// In a container the driver numbers processes as the host does: this one is not found among them.
TEST(MemoryHolders, AreNotNamedWhereNumbersOfProcessesMeanNothing) {
  EXPECT_TRUE(HoldersWhere(std::to_string(getppid()) + ":2147483648").empty());
}

TEST(MemoryHolders, AreUnknownWithoutTheLibraryOrTheGpu) {
  EXPECT_TRUE(HoldersOfMemory(kBus, "libnvidia-ml.so.0").empty());
  EXPECT_TRUE(HoldersOfMemory("0000:20:00.0", kLibrary.c_str()).empty());
  EXPECT_EQ(DescribeHolders({}), "");
}

}  // namespace
}  // namespace temper::gpu::memory_holders_test
