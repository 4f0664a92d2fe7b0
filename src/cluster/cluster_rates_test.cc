#include "cluster/cluster_rates.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace temper::cluster_rates_test {
namespace {

Cluster Parsed(const std::string& text) {
  Result<Cluster> cluster = ParseCluster(text, "test.yaml");
  TEMPER_CHECK(cluster.ok()) << cluster.status().message();
  return *std::move(cluster);
}

// Measured values, times `noise`.
Cluster Measured(double noise) {
  Cluster cluster{.name = "this",
                  .device = "CPU, 2 threads",
                  .date = "2026-11-24",
                  .memory = GiB(20),
                  .devices_per_host = 2,
                  .disk_read = 1.5e9 * noise,
                  .disk_write = 1e9 * noise,
                  .shared = true};
  Cluster::Share& share = cluster.shares[2];
  share.f32_peak = 4e11;
  share.copies = 6e9 * noise;
  share.beside_copies = {.slows = 0.75, .slowed = 0.5};
  share.link = {.bytes_per_second = 1e10, .latency = {2e-6}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    share.rates.SetOp(
        Op::kLinear, OpClass::kProduct, dtype,
        {.launch = {1e-6 * noise}, .flops_per_second = 1e11 * noise, .bandwidth = {{Bytes{1}, 3e10 * noise}}});
    share.rates.SetOp(Op::kAdd, OpClass::kMemory, dtype,
                      {.launch = {2e-7}, .bandwidth = {{Bytes{1000}, 9e10}, {Bytes{1000000}, 2e10 * noise}}});
  }
  share.rates.FillClasses();
  return cluster;
}

TEST(ClusterRates, AreTheSameFromACalibrationAndFromTheTextThatACheckpointKeeps) {
  for (const double noise : {1.0, 0.87, 1.23}) {
    const Cluster measured = Measured(noise);
    const std::string kept = PrintCluster(Rounded(measured));
    EXPECT_EQ(PrintCluster(Rounded(Parsed(kept))), kept);
    const RunRates one = RatesOn(measured, 2), other = RatesOn(Parsed(kept), 2),
                   again = RatesOn(Parsed(PrintCluster(measured)), 2);
    const Types in = {{DType::kF32, {100, 300}}, {DType::kF32, {200, 300}}}, out = {{DType::kF32, {100, 200}}};
    for (const RunRates* rates : {&other, &again}) {
      EXPECT_EQ(one.device.SecondsOf(Op::kLinear, in, out, {}).total().v,
                rates->device.SecondsOf(Op::kLinear, in, out, {}).total().v);
      EXPECT_EQ(one.host.SecondsOf(Op::kGlu, in, in, {}).total().v,
                rates->host.SecondsOf(Op::kGlu, in, in, {}).total().v);
      EXPECT_EQ(one.links.host_to_device, rates->links.host_to_device);
      EXPECT_EQ(one.links.disk_read, rates->links.disk_read);
      EXPECT_EQ(one.links.copies.slows, rates->links.copies.slows);
      EXPECT_EQ(one.source, rates->source);
    }
    EXPECT_EQ(one.source, "measured on CPU, 2 threads, 2026-11-24");
  }
}

TEST(ClusterRates, MeasuredRatesAreRoundedByLessThanFivePercent) {
  int steps = 0;
  double before = 0;
  for (double rate = 1e9; rate < 1e10; rate *= 1.003) {
    const double rounded = Rounded(rate);
    EXPECT_LE(std::abs(std::log(rounded / rate)), std::log(1.1) / 2 + 1e-9);
    EXPECT_EQ(Rounded(rounded), rounded);
    steps += rounded != before;
    before = rounded;
  }
  EXPECT_NEAR(steps, std::log(10) / std::log(1.1), 2);
  EXPECT_EQ(Rounded(0), 0) << "not stated";
}

TEST(ClusterRates, StatedRatesAreTakenAsTheyAre) {
  const Cluster stated = Parsed(std::string(ClusterPresets().front().text));
  const RunRates rates = RatesOn(stated, 1);
  EXPECT_EQ(rates.links.host_to_device, stated.LinksOf(1).host_to_device);
  EXPECT_EQ(rates.device.Of(Op::kAdd, OpClass::kMemory, DType::kF32).BytesPerSecond(MiB(1)),
            stated.ShareOf(1).rates.Of(Op::kAdd, OpClass::kMemory, DType::kF32).BytesPerSecond(MiB(1)));
  EXPECT_EQ(rates.source, "cluster " + stated.name);
}

}  // namespace
}  // namespace temper::cluster_rates_test
