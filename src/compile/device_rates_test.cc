#include "compile/device_rates.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

constexpr DType kBF16 = DType::kBF16;

TEST(DeviceRates, SecondsAreLaunchAndArithmeticAndBytes) {
  DeviceRates rates;
  rates.SetClass(OpClass::kProduct, kBF16, {.launch = {1e-3}, .flops_per_second = 1e9, .bandwidth = {{Bytes{1}, 1e8}}});
  const Types in = {{kBF16, {100, 200}}, {kBF16, {300, 200}}}, out = {{kBF16, {100, 300}}};
  const OpSeconds s = rates.SecondsOf(Op::kLinear, in, out, {});
  EXPECT_DOUBLE_EQ(s.launch.v, 1e-3);
  EXPECT_DOUBLE_EQ(s.arithmetic.v, 2.0 * 100 * 200 * 300 / 1e9);
  EXPECT_DOUBLE_EQ(s.memory.v, 2.0 * (100 * 200 + 300 * 200 + 100 * 300) / 1e8);
  EXPECT_DOUBLE_EQ(s.total().v, s.launch.v + s.arithmetic.v + s.memory.v);
}

TEST(DeviceRates, AnOpsOwnRateGoesBeforeItsClass) {
  DeviceRates rates;
  rates.SetClass(OpClass::kMemory, kBF16, {.bandwidth = {{Bytes{1}, 1e9}}});
  rates.SetOp(Op::kSwiglu, OpClass::kMemory, kBF16, {.bandwidth = {{Bytes{1}, 2e9}}});
  const Types two = {{kBF16, {10, 10}}, {kBF16, {10, 10}}}, one = {{kBF16, {10, 10}}};
  EXPECT_DOUBLE_EQ(rates.SecondsOf(Op::kAdd, two, one, {}).memory.v, 600 / 1e9);
  EXPECT_DOUBLE_EQ(rates.SecondsOf(Op::kSwiglu, two, one, {}).memory.v, 600 / 2e9);
}

TEST(DeviceRates, LorasProductsAreNarrow) {
  EXPECT_EQ(ClassOf(Op::kLinear, {{kBF16, {2048, 4096}}, {kBF16, {8, 4096}}}), OpClass::kNarrow);
  EXPECT_EQ(ClassOf(Op::kLinear, {{kBF16, {2048, 8}}, {kBF16, {4096, 8}}}), OpClass::kNarrow);
  EXPECT_EQ(ClassOf(Op::kLinear, {{kBF16, {2048, 4096}}, {kBF16, {4096, 4096}}}), OpClass::kProduct);
}

TEST(DeviceRates, BandwidthBetweenTwoSizesLiesBetweenTheirs) {
  const OpRate rate{.bandwidth = {{Bytes{1 << 10}, 100}, {Bytes{1 << 20}, 25}}};
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond({1}), 100) << "as the smallest";
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond({1 << 15}), 50) << "half way in the logarithms";
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond({1 << 30}), 25) << "as the largest";
}

TEST(WithIdleUnits, CountsTheUnitsOfTheLastWaveThatHaveNothingToDo) {
  const TileShape tile{.rows = 128, .columns = 128, .units = 100};
  const auto flops = [](int64_t m, int64_t n, int64_t k) { return Flops{2.0 * static_cast<double>(m * n * k)}; };
  // 10 x 10 tiles: one full wave.
  EXPECT_DOUBLE_EQ(WithIdleUnits(tile, {1280, 1280, 1024}, flops(1280, 1280, 1024)).v, flops(1280, 1280, 1024).v);
  // 101 tiles of which the last begins a second wave.
  const double two_waves = WithIdleUnits(tile, {128, 101 * 128, 1024}, flops(128, 101 * 128, 1024)).v;
  EXPECT_NEAR(two_waves / flops(128, 101 * 128, 1024).v, 200.0 / 101, 1e-9);
  // A quarter of the tiles, cut four times along the inner dim: nobody is idle.
  EXPECT_DOUBLE_EQ(WithIdleUnits(tile, {640, 640, 4096}, flops(640, 640, 4096)).v, flops(640, 640, 4096).v);
  // One row: the tile is computed whole.
  EXPECT_NEAR(WithIdleUnits(tile, {1, 12800, 512}, flops(1, 12800, 512)).v / flops(1, 12800, 512).v, 128, 1e-9);
}

}  // namespace
}  // namespace temper
