// Operands of a warpgroup's units are described as Triton describes them.
#include <gtest/gtest.h>

#ifdef TEMPER_GPU_EMULATED
#include "backend/gpu/units/warpgroup_unit.h"

namespace temper::gpu::warpgroup_unit_test {
namespace {

using Met = SwizzledTile<64, 128>;

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
}  // namespace temper::gpu::warpgroup_unit_test
#endif
