#include "compile/rates/device_rates.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

namespace temper::device_rates_test {
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

TEST(DeviceRates, AnOpsOwnRatePrecedesThatOfItsClass) {
  DeviceRates rates;
  rates.SetClass(OpClass::kMemory, kBF16, {.bandwidth = {{Bytes{1}, 1e9}}});
  rates.SetOp(Op::kGlu, OpClass::kMemory, kBF16, {.bandwidth = {{Bytes{1}, 2e9}}});
  const Types two = {{kBF16, {10, 10}}, {kBF16, {10, 10}}}, one = {{kBF16, {10, 10}}};
  EXPECT_DOUBLE_EQ(rates.SecondsOf(Op::kAdd, two, one, {}).memory.v, 600 / 1e9);
  EXPECT_DOUBLE_EQ(rates.SecondsOf(Op::kGlu, two, one, {}).memory.v, 600 / 2e9);
}

// The pass has a launch of its own and the rate of ops that move memory; the product is that of a weight in bf16.
TEST(DeviceRates, AWeightThatIsDequantisedFirstCostsAPassOverItAndTheProductOfItsNumbers) {
  DeviceRates rates;
  rates.SetClass(OpClass::kProduct, kBF16, {.launch = {1e-3}, .flops_per_second = 1e9, .bandwidth = {{Bytes{1}, 1e8}}});
  rates.SetClass(OpClass::kMemory, kBF16, {.launch = {2e-3}, .bandwidth = {{Bytes{1}, 3e8}}});
  const TensorType x{kBF16, {100, 200}}, y{kBF16, {100, 300}}, numbers{kBF16, {300, 200}};
  for (const ElementFormat format : {ElementFormat::Int8Rows(), ElementFormat::Nf4()}) {
    const TensorType w{format, {300, 200}};
    for (const auto& [op, in, out] : {std::tuple{Op::kLinear, x, y}, {Op::kLinearDx, y, x}}) {
      const OpSeconds product = rates.SecondsOf(op, {in, numbers}, {out}, {});
      const OpSeconds s = rates.SecondsOf(op, {in, w}, {out}, {{"dequantise", int64_t{1}}});
      EXPECT_DOUBLE_EQ(s.launch.v, 3e-3);
      EXPECT_DOUBLE_EQ(s.arithmetic.v, product.arithmetic.v);
      EXPECT_DOUBLE_EQ(s.memory.v, product.memory.v + static_cast<double>((w.bytes() + numbers.bytes()).v) / 3e8);
    }
  }
}

// One product of both weights; the copies have a launch of their own and the rate of ops that move memory.
TEST(DeviceRates, JoinedProductsCostOneProductAndThePassThatCopies) {
  DeviceRates rates;
  rates.SetClass(OpClass::kNarrow, kBF16, {.launch = {1e-3}, .bandwidth = {{Bytes{1}, 1e8}}});
  rates.SetClass(OpClass::kMemory, kBF16, {.launch = {2e-3}, .bandwidth = {{Bytes{1}, 3e8}}});
  const TensorType x{kBF16, {100, 200}}, w{kBF16, {8, 200}}, y{kBF16, {100, 8}};
  const OpSeconds product = rates.SecondsOf(Op::kLinear, {x, {kBF16, {16, 200}}}, {{kBF16, {100, 16}}}, {});
  const OpSeconds s = rates.SecondsOf(Op::kLinears, {x, w, w}, {y, y}, {});
  EXPECT_DOUBLE_EQ(s.launch.v, 3e-3);
  EXPECT_DOUBLE_EQ(s.memory.v, product.memory.v + 2.0 * 16 * (100 + 200) * 2 / 3e8);
}

TEST(DeviceRates, LorasProductsAreNarrow) {
  EXPECT_EQ(ClassOf(Op::kLinear, {{kBF16, {2048, 4096}}, {kBF16, {8, 4096}}}), OpClass::kNarrow);
  EXPECT_EQ(ClassOf(Op::kLinear, {{kBF16, {2048, 8}}, {kBF16, {4096, 8}}}), OpClass::kNarrow);
  EXPECT_EQ(ClassOf(Op::kLinear, {{kBF16, {2048, 4096}}, {kBF16, {4096, 4096}}}), OpClass::kProduct);
}

TEST(DeviceRates, BandwidthIsInterpolatedBetweenSizes) {
  const OpRate rate{.bandwidth = {{Bytes{1 << 10}, 100}, {Bytes{1 << 20}, 25}}};
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond({1}), 100) << "the rate of the smallest";
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond({1 << 15}), 50) << "half way in the logarithms";
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond({1 << 30}), 25) << "the rate of the largest";
}

TEST(DeviceRates, SeveralDocumentsInARowReduceTheWorkOfAttention) {
  DeviceRates rates;
  rates.SetClass(OpClass::kAttention, kBF16,
                 {.launch = {1e-3}, .flops_per_second = 1e9, .bandwidth = {{Bytes{1}, 1e8}}});
  const TensorType q{kBF16, {256, 128}}, lse{DType::kF32, {256, 2}};
  const Types in = {q, q, q, {DType::kI32, {256}}}, out = {q, lse};
  const Attributes attributes = {{"heads", int64_t{2}}, {"kv_heads", int64_t{2}}, {"scale", 1.0}};
  const OpSeconds whole = rates.SecondsOf(Op::kAttention, in, out, attributes);
  rates.set_attended(0.25);
  const OpSeconds packed = rates.SecondsOf(Op::kAttention, in, out, attributes);
  EXPECT_GT(whole.arithmetic.v, 0);
  EXPECT_DOUBLE_EQ(packed.arithmetic.v, whole.arithmetic.v / 4);
  EXPECT_DOUBLE_EQ(packed.launch.v, whole.launch.v);
  EXPECT_DOUBLE_EQ(packed.memory.v, whole.memory.v);
}

TEST(DeviceRates, StepsOfARingHaveTheRateOfAttention) {
  DeviceRates rates;
  rates.SetOp(Op::kAttention, OpClass::kAttention, kBF16, {.flops_per_second = 1e9, .bandwidth = {{Bytes{1}, 1e8}}});
  rates.SetOp(Op::kAttentionBackward, OpClass::kAttention, kBF16,
              {.flops_per_second = 2e9, .bandwidth = {{Bytes{1}, 1e8}}});
  for (const auto& [step, whole] :
       {std::pair{Op::kAttentionStep, Op::kAttention}, std::pair{Op::kAttentionStepBackward, Op::kAttentionBackward}}) {
    EXPECT_EQ(ClassOf(step, {{kBF16, {64, 128}}}), OpClass::kAttention);
    EXPECT_EQ(rates.Of(step, OpClass::kAttention, kBF16).flops_per_second,
              rates.Of(whole, OpClass::kAttention, kBF16).flops_per_second);
  }
}

TEST(DeviceRates, AGpusAttentionIsPricedAtWhatItsKernelsAreAssumedToReach) {
  const TensorType q = {DType::kBF16, {64, 32}}, lse = {DType::kF32, {64, 2}}, start = {DType::kI32, {64}};
  const Types in = {q, q, q, start}, out = {q, lse}, of_backward = {q, q, q, q, q, lse, start}, gradients = {q, q, q};
  const double peak = 312e12, pairs = 65 / 2.0 * 64 * 32;  // of an A100; keys per query, on average, and elements
  const DeviceRates gpu = TypicalGpu();
  EXPECT_DOUBLE_EQ(gpu.SecondsOf(Op::kAttention, in, out, {}).arithmetic.v, 4 * pairs / (0.35 * peak));
  EXPECT_DOUBLE_EQ(gpu.SecondsOf(Op::kAttentionBackward, of_backward, gradients, {}).arithmetic.v,
                   14 * pairs / (0.25 * peak));
}

// Chunks of 64 rows pass over the weight, and add to its whole gradient, eight times as often as chunks of 512.
TEST(DeviceRates, SmallLossChunksPassOverTheWeightMoreOften) {
  DeviceRates rates;
  rates.SetClass(OpClass::kProduct, kBF16, {.flops_per_second = 1e9, .bandwidth = {{Bytes{1}, 1e8}}});
  const int64_t T = 2048, D = 256, V = 8192;
  const TensorType x{kBF16, {T, D}}, w{kBF16, {V, D}};
  const auto memory = [&](int64_t chunk, int64_t grad_w) {
    Attributes a = {{"pair2", int64_t{0}},   {"grad_x", int64_t{1}}, {"grad_w", grad_w},     {"grad_x2", int64_t{0}},
                    {"grad_w2", int64_t{0}}, {"acc_w", int64_t{0}},  {"acc_w2", int64_t{0}}, {"chunk", chunk}};
    Types out = {{DType::kF32, {T}}, x};
    if (grad_w != 0) out.push_back({DType::kF32, {V, D}});
    return rates.SecondsOf(Op::kLinearCrossEntropy, {x, w, {DType::kI32, {T}}}, out, a).memory.v;
  };
  for (const int64_t grad_w : {0, 1}) {
    const double of_chunk = (2.0 * 2 + (grad_w != 0 ? 2.0 * 4 : 0)) * static_cast<double>(V * D);
    EXPECT_NEAR(memory(64, grad_w) - memory(512, grad_w), (32 - 4) * of_chunk / 1e8, 1e-9);
    EXPECT_DOUBLE_EQ(memory(1024, grad_w), memory(512, grad_w)) << "rates are measured on the default";
  }
}

TEST(WithIdleUnits, CountsIdleUnitsOfTheLastWave) {
  const TileShape tile{.rows = 128, .columns = 128, .units = 100};
  const auto flops = [](int64_t m, int64_t n, int64_t k) { return Flops{2.0 * static_cast<double>(m * n * k)}; };
  // 10 x 10 tiles: one full wave.
  EXPECT_DOUBLE_EQ(WithIdleUnits(tile, {1280, 1280, 1024}, flops(1280, 1280, 1024)).v, flops(1280, 1280, 1024).v);
  // 101 tiles of which the last begins a second wave.
  const double two_waves = WithIdleUnits(tile, {128, 101 * 128, 1024}, flops(128, 101 * 128, 1024)).v;
  EXPECT_NEAR(two_waves / flops(128, 101 * 128, 1024).v, 200.0 / 101, 1e-9);
  // A quarter of the tiles, each split in four along the inner dim: no unit is idle.
  EXPECT_DOUBLE_EQ(WithIdleUnits(tile, {640, 640, 4096}, flops(640, 640, 4096)).v, flops(640, 640, 4096).v);
  // One row: the tile is computed whole.
  EXPECT_NEAR(WithIdleUnits(tile, {1, 12800, 512}, flops(1, 12800, 512)).v / flops(1, 12800, 512).v, 128, 1e-9);
}

}  // namespace
}  // namespace temper::device_rates_test
