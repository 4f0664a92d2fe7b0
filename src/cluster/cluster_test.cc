#include "cluster/cluster.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

namespace temper::cluster_test {
namespace {

constexpr char kTwoHosts[] = R"(name: test
hosts: 2
device:
  name: D
  memory: 10 GB
  reserve: 1 GB
  bandwidth: 1 TB/s
  bandwidth_share: 0.5
  launch: 10 us
  f32: {peak: 10 TFLOP/s, products: 0.5, attention: 0.25}
host:
  devices: 4
  link: {bandwidth: 100 GB/s, latency: 1 us}
network: {bandwidth: 40 GB/s, latency: 5 us}
price: {per_device_hour: 2.5}
)";

Cluster Parsed(const std::string& text) {
  Result<Cluster> cluster = ParseCluster(text, "test.yaml");
  TEMPER_CHECK(cluster.ok()) << cluster.status().message();
  return *cluster;
}

std::string ErrorOf(const std::string& text) {
  const Result<Cluster> cluster = ParseCluster(text, "test.yaml");
  return cluster.ok() ? "" : cluster.status().message();
}

std::string With(const std::string& what, const std::string& instead) {
  std::string text = kTwoHosts;
  return text.replace(text.find(what), what.size(), instead);
}

TEST(Cluster, EveryPresetIsReadAndComplete) {
  ASSERT_GE(ClusterPresets().size(), 13u);
  for (const ClusterPreset& preset : ClusterPresets()) {
    const auto cluster = ParseCluster(preset.text, std::string(preset.name));
    ASSERT_TRUE(cluster.ok()) << cluster.status().message();
    EXPECT_EQ(cluster->name, preset.name);
    EXPECT_GT(cluster->MemoryOf(1), GiB(5));
    EXPECT_GT(cluster->ShareOf(1).peak(DType::kBF16), 1e12);
    const bool several = cluster->devices() > 1;
    EXPECT_EQ(preset.name.find("8x") != std::string::npos, several) << "a name says how many there are";
    EXPECT_NE(preset.text.find("#"), std::string::npos) << "figures without a source";
  }
  EXPECT_TRUE(OpenCluster(PosixEnv(), "8xH100").ok());
}

TEST(Cluster, ACardIsFoundWithoutItsMemory) {
  for (const char* name : {"T4", "L40S", "RTX3090", "1xA100"}) {
    const auto cluster = OpenCluster(PosixEnv(), name);
    ASSERT_TRUE(cluster.ok()) << cluster.status().message();
    EXPECT_TRUE(cluster->name.starts_with(std::string(name) + "-")) << cluster->name;
  }
  EXPECT_EQ(OpenCluster(PosixEnv(), "4090")->name, "RTX4090-24");
  EXPECT_EQ(OpenCluster(PosixEnv(), "2x4090")->name, "2xRTX4090-24, link assumed");
  for (const char* name : {"", "T", "RTX", "40"}) EXPECT_FALSE(OpenCluster(PosixEnv(), name).ok()) << name;
}

TEST(Cluster, ANumberOfCardsIsAHostWithSoMany) {
  const auto host = [](const char* name) {
    Result<Cluster> cluster = OpenCluster(PosixEnv(), name);
    EXPECT_TRUE(cluster.ok()) << cluster.status().message();
    return std::move(*cluster);
  };
  const Cluster four = host("4xRTX4090"), one = host("RTX4090"), eight = host("8xH100"), two = host("2xH100");
  EXPECT_EQ(four.devices(), 4);
  EXPECT_EQ(four.name, "4xRTX4090-24, link assumed");
  EXPECT_EQ(four.MemoryOf(1), one.MemoryOf(1));
  EXPECT_EQ(four.host_memory, one.host_memory) << "the host is that of the preset";
  EXPECT_DOUBLE_EQ(four.ShareOf(1).link.bytes_per_second, 7.5e9) << "60 GB/s of memory, written and read by four";
  EXPECT_EQ(two.devices(), 2);
  EXPECT_EQ(two.name, "2xH100");
  EXPECT_DOUBLE_EQ(two.ShareOf(1).link.bytes_per_second, eight.ShareOf(1).link.bytes_per_second) << "NVLink";
  EXPECT_EQ(host("4xH200").ShareOf(1).link.bytes_per_second, host("8xH200").ShareOf(1).link.bytes_per_second);
  EXPECT_EQ(host("2xA100").name, "2xA100-80, link assumed");
  EXPECT_EQ(host("1xL40S").devices(), 1);
  for (const char* name : {"0xH100", "65xH100", "8xH1000", "x", "2x", "-2xH100", "99999999999xT4"}) {
    EXPECT_NE(OpenCluster(PosixEnv(), name).status().message().find("several of a card, as in 4xRTX4090"),
              std::string::npos)
        << name;
  }
}

TEST(Cluster, ADeviceMayBeTooOldForOurKernels) {
  EXPECT_FALSE(OpenCluster(PosixEnv(), "T4")->has_kernels());
  EXPECT_TRUE(OpenCluster(PosixEnv(), "8xH100")->has_kernels());
  const std::string device = "  launch: 10 us\n";
  EXPECT_FALSE(Parsed(With(device, device + "  compute_capability: 7.5\n")).has_kernels());
  EXPECT_TRUE(Parsed(With(device, device + "  compute_capability: 8.0\n")).has_kernels());
  EXPECT_NE(ErrorOf(With(device, device + "  compute_capability: T4\n")).find("should be a number"), std::string::npos);
}

TEST(Cluster, AnUnknownNameListsThePresets) {
  const auto cluster = OpenCluster(PosixEnv(), "8xH300");
  ASSERT_FALSE(cluster.ok());
  EXPECT_NE(cluster.status().message().find("8xMI300X"), std::string::npos) << cluster.status().message();
}

TEST(Cluster, ErrorsNameTheLineAndTheRemedy) {
  EXPECT_EQ(ErrorOf(kTwoHosts), "");
  EXPECT_NE(ErrorOf(With("memory: 10 GB", "memory: 10")).find("test.yaml line 5: memory needs a unit"),
            std::string::npos);
  EXPECT_NE(ErrorOf(With("launch: 10 us", "lunch: 10 us")).find("'launch' is missing"), std::string::npos);
  EXPECT_NE(ErrorOf(With("  launch: 10 us", "  launch: 10 us\n  colour: red")).find("unknown key 'colour'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(With("network: {bandwidth: 40 GB/s, latency: 5 us}", "")).find("'network' is missing"),
            std::string::npos);
  EXPECT_NE(ErrorOf(With("bandwidth_share: 0.5", "bandwidth_share: 1.5")).find("at most 1"), std::string::npos);
  EXPECT_NE(ErrorOf(With("hosts: 2", "hosts: 1.5")).find("whole number"), std::string::npos);
  EXPECT_NE(ErrorOf("name: x").find("'device' is missing"), std::string::npos);
  EXPECT_NE(ErrorOf("[1, 2]"), "");
  EXPECT_NE(ErrorOf(""), "");
}

TEST(Cluster, WithoutBf16HardwareValuesStoredInItAreComputedInF32) {
  const Cluster cluster = Parsed(kTwoHosts);
  EXPECT_FALSE(cluster.has_bf16());
  EXPECT_DOUBLE_EQ(cluster.ShareOf(1).peak(DType::kBF16), 10e12);
  const Types in = {{DType::kBF16, {1000, 1000}}, {DType::kBF16, {1000, 1000}}}, out = {in[0]};
  const OpSeconds s = cluster.ShareOf(1).rates.SecondsOf(Op::kLinear, in, out, {});
  EXPECT_DOUBLE_EQ(s.arithmetic.v, 2e9 / 5e12) << "products reach half the f32 peak";
  EXPECT_DOUBLE_EQ(s.memory.v, 6e6 / 0.5e12) << "two bytes each";
}

TEST(Cluster, AttentionsBackwardReachesItsOwnShareOfThePeakInFlopsThatAreSpent) {
  const TensorType q = {DType::kF32, {64, 32}}, lse = {DType::kF32, {64, 2}}, start = {DType::kI32, {64}};
  const Types in = {q, q, q, q, q, lse, start}, out = {q, q, q};
  const auto seconds = [&](const std::string& text) {
    return Parsed(text).ShareOf(1).rates.SecondsOf(Op::kAttentionBackward, in, out, {}).arithmetic.v;
  };
  const double elements = 64 * 32, pairs = 65 / 2.0;  // keys per query, on average
  const char* const kShare = "attention: 0.25";
  EXPECT_DOUBLE_EQ(seconds(kTwoHosts), 10 * elements * pairs / (0.25 * 10e12)) << "absent: the flops that are needed";
  EXPECT_DOUBLE_EQ(seconds(With(kShare, "attention: 0.25, attention_backward: 0.2")), 14 * elements * pairs / 2e12);
  EXPECT_DOUBLE_EQ(seconds(With(kShare, "attention: 0.35, attention_backward: 0.2")), 14 * elements * pairs / 2e12);
}

TEST(Cluster, CollectivesTakeTheSlowerOfLinkAndNetwork) {
  const Cluster cluster = Parsed(kTwoHosts);
  Mesh within;
  within.set_size(Axis::kFsdp, 4);
  const AxisSet fsdp = Axis::kFsdp;
  // Each of 4 sends 3/4 of 8 GB over its own link.
  EXPECT_NEAR(CollectiveSeconds(cluster.RankLinksOf(within.ranks()), within, fsdp, {6'000'000'000}, 3).v,
              6e9 / 100e9 + 3e-6, 1e-9);
  EXPECT_EQ(ShareBetweenHosts(cluster.RankLinksOf(within.ranks()), within, fsdp), 0);

  Mesh across;
  across.set_size(Axis::kFsdp, 8);
  // Each of 8 sends 7/8 of 8 GB; half of the 8 GB comes to a host from the other, through 40 GB/s.
  EXPECT_NEAR(CollectiveSeconds(cluster.RankLinksOf(across.ranks()), across, fsdp, {7'000'000'000}, 7).v,
              4e9 / 40e9 + 7 * 5e-6, 1e-9);
  EXPECT_DOUBLE_EQ(ShareBetweenHosts(cluster.RankLinksOf(across.ranks()), across, fsdp), 2.0 / 8);

  // dp between hosts, fsdp within: four groups of two share the network.
  Mesh hybrid;
  hybrid.set_size(Axis::kDp, 2);
  hybrid.set_size(Axis::kFsdp, 4);
  EXPECT_EQ(ShareBetweenHosts(cluster.RankLinksOf(hybrid.ranks()), hybrid, fsdp), 0);
  EXPECT_NEAR(CollectiveSeconds(cluster.RankLinksOf(hybrid.ranks()), hybrid, Axis::kDp, {1'000'000'000}, 2).v,
              4 * 1e9 / 40e9 + 2 * 5e-6, 1e-9);
}

TEST(Cluster, AMeasuredClusterSurvivesARoundTrip) {
  Cluster cluster{.name = "this",
                  .device = "CPU, 2 threads",
                  .memory = GiB(20),
                  .devices_per_host = 2,
                  .disk_read = 1.5e9,
                  .disk_write = 1e9,
                  .shared = true};
  for (const int ranks : {1, 2}) {
    Cluster::Share& share = cluster.shares[ranks];
    share.f32_peak = 4e11 / ranks;
    share.bf16_peak = 8e11 / ranks;
    if (ranks == 2) {
      share.link = {.bytes_per_second = 1e10, .latency = {2e-6}};
      share.copies = 6e9;
      share.beside_copies = {.slows = 0.75, .slowed = 0.5};
      share.beside_disk = {.slows = 0, .slowed = 0.25};
    }
    share.rates.SetOp(Op::kLinear, OpClass::kNarrow, DType::kBF16,
                      {.launch = {1e-6}, .flops_per_second = 1e11, .bandwidth = {{Bytes{1}, 3e10}}});
    share.rates.SetOp(Op::kRmsNorm, OpClass::kMemory, DType::kF32,
                      {.launch = {2e-7}, .bandwidth = {{Bytes{1000}, 9e10}, {Bytes{1000000}, 2e10}}});
  }
  cluster.other_load = "other programs took 0.9 of 2 processors";
  const std::string text = PrintCluster(cluster);
  const Cluster back = Parsed(text);
  EXPECT_EQ(PrintCluster(back), text);
  EXPECT_EQ(back.MemoryOf(2), GiB(10)) << "ranks share the machine's memory";
  EXPECT_DOUBLE_EQ(back.ShareOf(2).bf16_peak, 4e11);
  const LinkRates links = back.LinksOf(2);
  EXPECT_DOUBLE_EQ(links.host_to_device, 6e9);
  EXPECT_NEAR(links.SecondsBesideKernels(Tier::kHost, Tier::kDevice, Bytes{6'000'000'000}).v, 1.5, 1e-3);
  EXPECT_DOUBLE_EQ(links.copies.slows, 0.75);
  EXPECT_DOUBLE_EQ(links.disk.slows, 0);
  ASSERT_NE(back.ShareOf(1).rates.Own(Op::kRmsNorm, OpClass::kMemory, DType::kF32), nullptr);
  EXPECT_EQ(back.ShareOf(1).rates.Own(Op::kLinear, OpClass::kProduct, DType::kBF16), nullptr);
}

}  // namespace
}  // namespace temper::cluster_test
