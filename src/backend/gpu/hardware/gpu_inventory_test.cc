// What users are told of machines with other drivers and cards than anybody here has.
#include "backend/gpu/hardware/gpu_inventory.h"

#include <gtest/gtest.h>

namespace temper::gpu::gpu_inventory_test {
namespace {

DriverReport Working() {
  DriverReport report{.driver = 13000, .runtime = 13000};
  report.cards.push_back({"NVIDIA H200", 9, 0, GiB(140)});
  report.products = std::string("cuBLASLt 13.1.0");
  return report;
}

void ExpectSays(const Status& status, const std::vector<std::string>& words) {
  ASSERT_FALSE(status.ok());
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " in: " << status.message();
  }
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << "one line";
}

TEST(GpuInventory, ListsWhatCanBeUsed) {
  const auto found = InventoryOf(Working());
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->libraries, "CUDA runtime 13.0, driver 13.0, cuBLASLt 13.1.0");
  ASSERT_EQ(found->gpus.size(), 1u);
  EXPECT_EQ(found->gpus[0].refused, "");
  EXPECT_TRUE(CheckUsable(Working(), *found, 0).ok());
  ExpectSays(CheckUsable(Working(), *found, 1), {"no GPU 1", "has 1"});
}

TEST(GpuInventory, SaysByWhomAttentionIsComputedWhereALibraryIsAsked) {
  DriverReport report = Working();
  report.attention = std::string("cuDNN 9.26.0");
  EXPECT_EQ(InventoryOf(report)->libraries, "CUDA runtime 13.0, driver 13.0, cuBLASLt 13.1.0, cuDNN 9.26.0");
  report.attention = Unsupported("libcudnn.so.9 could not be loaded (gone): install it");
  const auto found = InventoryOf(report);
  ASSERT_TRUE(found.ok());
  EXPECT_NE(found->libraries.find("attention by our own kernels: libcudnn.so.9 could not be loaded"), std::string::npos)
      << found->libraries;
  EXPECT_TRUE(CheckUsable(report, *found, 0).ok()) << "what it is missed for can be done without it";
}

TEST(GpuInventory, NamesWhatIsMissingAndTheRemedy) {
  DriverReport report = Working();
  report.state = DriverState::kMissing;
  ExpectSays(InventoryOf(report).status(), {"no driver", "install NVIDIA's"});
  report.state = DriverState::kTooOld;
  report.driver = 12020;
  ExpectSays(InventoryOf(report).status(), {"too old", "serves CUDA 12.2", "needs 13.0", "update"});
  report.state = DriverState::kFailed;
  report.failure = "unknown error (999)";
  ExpectSays(InventoryOf(report).status(), {"does not answer", "unknown error (999)", "nvidia-smi"});
  report.failure = "system not yet initialized (802)";
  report.code = 802;
  ExpectSays(InventoryOf(report).status(), {"system not yet initialized", "systemctl start nvidia-fabricmanager"});
  report.code = 803;
  ExpectSays(InventoryOf(report).status(), {"another version than the driver", "reboot"});
  report.state = DriverState::kWorks;
  report.cards.clear();
  ExpectSays(InventoryOf(report).status(), {"no GPU was found", "CUDA_VISIBLE_DEVICES"});
}

TEST(GpuInventory, ACardThatTheProgramWasNotBuiltForIsToldWithHowToBuildForIt) {
  ExpectSays(Unsupported(NoKernelsFor({.name = "NVIDIA A100", .major = 8, .minor = 0}, false, "no kernel image")),
             {"NVIDIA A100", "no kernel image", "CMAKE_CUDA_ARCHITECTURES=80"});
  ExpectSays(Unsupported(NoKernelsFor({.name = "MI300X", .major = 9, .minor = 0x42}, true, "invalid device function")),
             {"MI300X", "TEMPER_HIP_ARCHITECTURES=gfx942"});
}

TEST(GpuInventory, RefusesCardsWithoutBf16ButListsThem) {
  DriverReport report = Working();
  report.cards.push_back({"Tesla V100", 7, 0, GiB(16)});
  report.cards.push_back({"GeForce RTX 2080", 7, 5, GiB(8)});
  const auto found = InventoryOf(report);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(CheckUsable(report, *found, 0).ok());
  ExpectSays(CheckUsable(report, *found, 1), {"GPU 1 (Tesla V100)", "7.0", "8.0", "temper plan"});
  ExpectSays(CheckUsable(report, *found, 2), {"GPU 2", "7.5"});
}

TEST(GpuInventory, KnowsAmdsCards) {
  DriverReport report{.amd = true, .driver = 60200000, .runtime = 60200000};
  report.products = std::string("hipBLASLt");
  report.cards = {{"MI250X", 9, 0x0a, GiB(64)}, {"MI100", 9, 0x08, GiB(32)}, {"MI300X", 9, 0x42, GiB(192)}};
  const auto found = InventoryOf(report);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->gpus[0].refused, "");
  EXPECT_EQ(found->gpus[2].refused, "");
  ExpectSays(CheckUsable(report, *found, 1), {"gfx908", "gfx90a"});
}

TEST(GpuInventory, SaysWhichLibraryIsMissingWhenAGpuIsOpened) {
  DriverReport report = Working();
  report.products = NotFound("libcublasLt.so.13 was not found: install CUDA's cuBLAS");
  const auto found = InventoryOf(report);
  ASSERT_TRUE(found.ok()) << "it can still be listed";
  ExpectSays(CheckUsable(report, *found, 0), {"libcublasLt.so.13", "install"});
}

TEST(GpuInventory, SaysWhoMayHoldTheMemory) {
  const std::string held = TooLittleFree("NVIDIA H200", GiB(80), GiB(20), GiB(140), "");
  EXPECT_NE(held.find("another process may hold the rest"), std::string::npos) << held;
  EXPECT_NE(held.find("Try a --memory.device below what is free, --memory.recompute block"), std::string::npos) << held;
  const std::string small =
      TooLittleFree("NVIDIA H200", GiB(180), GiB(139), GiB(140), "python3 (process 4711) holds 1.00 GiB");
  const std::string named =
      TooLittleFree("NVIDIA H200", GiB(80), GiB(20), GiB(140), "python3 (process 4711) holds 119.00 GiB");
  EXPECT_NE(named.find("20.00 GiB of 140.00 GiB free (python3 (process 4711) holds 119.00 GiB: end it, or"),
            std::string::npos)
      << named;
  EXPECT_EQ(small.find("4711"), std::string::npos) << "nobody holds what the card never had: " << small;
}

}  // namespace
}  // namespace temper::gpu::gpu_inventory_test
