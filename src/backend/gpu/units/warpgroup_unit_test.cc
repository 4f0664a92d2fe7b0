// Products of a warpgroup against plain ones, what the emulator finds wrong with their use, and that operands are
// described as Triton describes them.
#include <gtest/gtest.h>

#include <vector>

#include "base/philox.h"

#ifdef TEMPER_GPU_EMULATED
#include "backend/gpu/units/warpgroup_unit.h"

namespace temper::gpu {
namespace {

constexpr simt::Machine kMachine = {.warpgroups = true}, kShuffled = {.order = 5, .warpgroups = true};
using Rows = SwizzledTile<128, 128>;  // of which a warpgroup takes half
using Met = SwizzledTile<64, 128>;
constexpr int kWindow = Rows::kElements + Met::kElements;

// What a use of the units leaves out.
enum class Forgets { kNothing, kTileFence, kRegisterFence, kBarrier, kAwait, kWarp };

struct Scene {
  std::vector<float> rows = std::vector<float>(Rows::kElements), met = std::vector<float>(Met::kElements);
  std::vector<float> scores = std::vector<float>(128 * 64), out = std::vector<float>(128 * 128);

  Scene() {
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = ToFloat(ToBF16(NormalAt({.seed = 1}, i)));
    for (size_t i = 0; i < met.size(); ++i) met[i] = ToFloat(ToBF16(NormalAt({.seed = 2}, i)));
  }
};

// scores = rows met^T; out = bf16(scores) met: as attention's kernels use the units, by two warpgroups.
void Multiply(Scene* scene, Forgets forgets) {
  TEMPER_WINDOW(Bf16Bits, window, kWindow);
  const Rows rows = {0};
  const Met met = {Rows::kElements};
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, group = thread / kWarpgroup;
  for (int i = thread; i < Rows::kElements; i += 256) {
    window[rows.Place(i / 128, i % 128)] = ToBF16(scene->rows[static_cast<size_t>(i)]).bits;
  }
  for (int i = thread; i < Met::kElements; i += 256) {
    window[met.Place(i / 128, i % 128)] = ToBF16(scene->met[static_cast<size_t>(i)]).bits;
  }
  if (forgets != Forgets::kTileFence) FenceTiles();
  if (forgets != Forgets::kBarrier) __syncthreads();
  if (forgets == Forgets::kWarp && thread / 32 == 3) return;
  FragmentC scores[8], out[16] = {};
  if (forgets != Forgets::kRegisterFence) FenceRegisters();
  for (int e = 0; e < 128; e += 16) MultiplyRows(window, rows, group * 64, met, e, e > 0, scores);
  CloseProducts();
  if (forgets != Forgets::kAwait) AwaitProducts<0>();
  FragmentA weights[4];
  for (int i = 0; i < 4; ++i) {
    const FragmentC* const c = scores + i * 2;
    weights[i] = {{PackBf16(c[0].x[0], c[0].x[1]), PackBf16(c[0].x[2], c[0].x[3]), PackBf16(c[1].x[0], c[1].x[1]),
                   PackBf16(c[1].x[2], c[1].x[3])}};
  }
  FenceRegisters();
  for (int row = 0; row < 64; row += 16) MultiplyWeights(window, weights[row / 16], met, row, out);
  CloseProducts();
  AwaitProducts<0>();
  const int row = group * 64 + thread % kWarpgroup / 32 * 16 + lane / 4;
  const auto store = [&](const FragmentC* c, int tiles, int width, std::vector<float>* y) {
    for (int n = 0; n < tiles; ++n) {
      for (int i = 0; i < 4; ++i) {
        (*y)[static_cast<size_t>((row + i / 2 * 8) * width + n * 8 + lane % 4 * 2 + i % 2)] = c[n].x[i];
      }
    }
  };
  store(scores, 8, 64, &scene->scores);
  store(out, 16, 128, &scene->out);
}

TEST(WarpgroupUnit, MultipliesRowsAndWeights) {
  for (const simt::Machine& machine : {kMachine, kShuffled}) {
    Scene scene;
    ASSERT_EQ(simt::Launch(machine, {1}, {256}, [&] { Multiply(&scene, Forgets::kNothing); }), "");
    for (size_t i = 0; i < 128; ++i) {
      std::vector<double> weights(64);
      for (size_t j = 0; j < 64; ++j) {
        double dot = 0, size = 0;
        for (size_t e = 0; e < 128; ++e) {
          dot += double{scene.rows[i * 128 + e]} * scene.met[j * 128 + e];
          size += std::fabs(double{scene.rows[i * 128 + e]} * scene.met[j * 128 + e]);
        }
        ASSERT_NEAR(scene.scores[i * 64 + j], dot, 128 * 0x1p-24 * size) << i << " " << j;
        weights[j] = ToFloat(ToBF16(scene.scores[i * 64 + j]));
      }
      for (size_t e = 0; e < 128; ++e) {
        double dot = 0, size = 0;
        for (size_t j = 0; j < 64; ++j) {
          dot += weights[j] * scene.met[j * 128 + e];
          size += std::fabs(weights[j] * scene.met[j * 128 + e]);
        }
        ASSERT_NEAR(scene.out[i * 128 + e], dot, 64 * 0x1p-24 * size) << i << " " << e;
      }
    }
  }
}

TEST(WarpgroupUnit, WhatHardwareWouldGetWrongInSilenceIsAFault) {
  const auto fault = [](Forgets forgets) {
    Scene scene;
    return simt::Launch(kMachine, {1}, {256}, [&] { Multiply(&scene, forgets); });
  };
  EXPECT_NE(fault(Forgets::kTileFence).find("wrote without a fence"), std::string::npos);
  EXPECT_NE(fault(Forgets::kRegisterFence).find("a product of registers without a fence"), std::string::npos);
  EXPECT_NE(fault(Forgets::kBarrier).find("since the last __syncthreads"), std::string::npos);
  EXPECT_NE(fault(Forgets::kWarp).find("waits for its warpgroup"), std::string::npos);
}

TEST(WarpgroupUnit, SumsThatNobodyWaitedForAreNoNumbers) {
  Scene scene;
  ASSERT_EQ(simt::Launch(kMachine, {1}, {256}, [&] { Multiply(&scene, Forgets::kAwait); }), "");
  for (const float x : scene.out) ASSERT_TRUE(std::isnan(x));
}

// What tests/conformance/wgmma_layout.py prints: the bytes of 16-byte chunks of the first eight rows of a tile of
// 64 x 128, and what its right operands are described as.
constexpr int kTritonPlaces[] = {
    0,    16,   32,   48,   64,   80,   96,   112,  8192, 8208, 8224, 8240, 8256, 8272, 8288, 8304, 144,  128,  176,
    160,  208,  192,  240,  224,  8336, 8320, 8368, 8352, 8400, 8384, 8432, 8416, 288,  304,  256,  272,  352,  368,
    320,  336,  8480, 8496, 8448, 8464, 8544, 8560, 8512, 8528, 432,  416,  400,  384,  496,  480,  464,  448,  8624,
    8608, 8592, 8576, 8688, 8672, 8656, 8640, 576,  592,  608,  624,  512,  528,  544,  560,  8768, 8784, 8800, 8816,
    8704, 8720, 8736, 8752, 720,  704,  752,  736,  656,  640,  688,  672,  8912, 8896, 8944, 8928, 8848, 8832, 8880,
    8864, 864,  880,  832,  848,  800,  816,  768,  784,  9056, 9072, 9024, 9040, 8992, 9008, 8960, 8976, 1008, 992,
    976,  960,  944,  928,  912,  896,  9200, 9184, 9168, 9152, 9136, 9120, 9104, 9088};
constexpr uint64_t kTritonByRows = 0x4000004000000000, kTritonByColumns = 0x4000004002000000;
constexpr int kTritonRowsBegin[] = {0, 32, 64, 96, 8192, 8224, 8256, 8288};
constexpr int kTritonColumnsBegin[] = {0, 2048, 4096, 6144};

TEST(WarpgroupUnit, TilesLieAndAreDescribedAsThoseOfTriton) {
  const Met tile = {0};
  for (int chunk = 0; chunk < Met::kElements / 8; ++chunk) {
    EXPECT_EQ(tile.Place(chunk / 16, chunk % 16 * 8) * 2, kTritonPlaces[chunk % 128] + chunk / 128 * 1024) << chunk;
  }
  const int panel = Met::kRows * kPanel * 2;
  for (int step = 0; step < 8; ++step) EXPECT_EQ(tile.Begin(0, step * 16) * 2, kTritonRowsBegin[step]);
  for (int step = 0; step < 4; ++step) EXPECT_EQ(tile.Begin(step * 16, 0) * 2, kTritonColumnsBegin[step]);
  for (const uint32_t address : {0u, 1024u, 0x38000u}) {
    EXPECT_EQ(Describe(address, 0), kTritonByRows | address >> 4);
    EXPECT_EQ(Describe(address, panel), kTritonByColumns | address >> 4);
  }
}

}  // namespace
}  // namespace temper::gpu
#endif
