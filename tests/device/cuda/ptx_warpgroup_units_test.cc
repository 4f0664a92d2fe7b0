// A warpgroup's product, and the calls around it that must not be missing. Swizzled layouts: ptx_triton_test.cc.
#include <cmath>

#include "ptx_floating_point.h"
#include "ptx_under_test.h"

namespace temper::ptx::ptx_warpgroup_units_test {
namespace {

// Of 128 threads: tiles A [64, 16] and B [8, 16] come into shared memory as they lie in `in` (cores of 8 rows of 16
// bytes, one behind the other: first along k, 256 bytes per 8 rows); %rd6 and %rd7 describe them, %f1 to %f4 are sums.
struct Steps {
  std::string fill =
      "st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7}; @%p1 st.shared.v4.u32 [%r3+2048], {%r8, %r9, %r10, %r11};\n";
  std::string fence_tiles = "fence.proxy.async.shared::cta; bar.sync 0;\n";
  std::string fence_registers = "wgmma.fence.sync.aligned;\n";
  std::string guard = "", add = "0", factors = "1, 1, 0, 0", close = "wgmma.commit_group.sync.aligned;\n", between = "",
              wait = "wgmma.wait_group.sync.aligned 0;\n", after = "";

  std::string Body() const {
    return "shl.b32 %r1, %r0, 4; mov.u32 %r2, tile; add.u32 %r3, %r2, %r1; cvt.u64.u32 %rd3, %r1; add.u64 %rd4, %rd2, "
           "%rd3;\n"
           "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd4]; setp.lt.u32 %p1, %r0, 16;\n"
           "@%p1 ld.global.v4.u32 {%r8, %r9, %r10, %r11}, [%rd4+2048];\n" +
           fill + fence_tiles +
           // The stride along k is 128 bytes, that of 8 rows 256.
           "shr.u32 %r12, %r2, 4; cvt.u64.u32 %rd5, %r12; or.b64 %rd6, %rd5, 0x1000080000; add.u64 %rd7, %rd6, 128;\n"
           "mov.f32 %f1, 0f3F800000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n" +
           fence_registers + guard +
           "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd6, %rd7, " + add + ", " +
           factors + ";\n" + close + between + wait +
           "mul.wide.u32 %rd8, %r0, 16; add.u64 %rd9, %rd1, %rd8; st.global.v4.f32 [%rd9], {%f1, %f2, %f3, %f4};\n" +
           after;
  }
};

struct Tiles {
  float a[64][16], b[8][16];
  std::vector<uint16_t> bytes = std::vector<uint16_t>(64 * 16 + 8 * 16);
  Tiles() {
    const auto put = [&](int first, int row, int k, float x) {
      bytes[static_cast<size_t>(first + row / 8 * 128 + k / 8 * 64 + row % 8 * 8 + k % 8)] = ToBFloat(x);
    };
    for (int row = 0; row < 64; ++row) {
      for (int k = 0; k < 16; ++k) {
        a[row][k] = static_cast<float>((row * 7 + k * 3) % 13 - 6);
        put(0, row, k, a[row][k]);
        if (row >= 8) continue;
        b[row][k] = static_cast<float>((row * 5 + k * 11) % 17 - 8);
        put(64 * 16, row, k, b[row][k]);
      }
    }
  }
};

std::string FaultOf(const Steps& steps, int threads = 128) {
  const auto out = RunBody<float>(steps.Body(), threads, Tiles().bytes, 4 * threads);
  return out.ok() ? "" : out.status().message();
}

TEST(PtxWarpgroupUnits, MultiplyTilesWithoutASwizzle) {
  const Tiles tiles;
  for (const bool adds : {false, true}) {
    for (const bool negates : {false, true}) {
      Steps steps;
      steps.add = adds ? "1" : "0";
      steps.factors = negates ? "1, -1, 0, 0" : "1, 1, 0, 0";
      const auto out = RunBody<float>(steps.Body(), 128, tiles.bytes, 512);
      ASSERT_TRUE(out.ok()) << out.status().message();
      for (int thread = 0; thread < 128; ++thread) {
        for (int r = 0; r < 4; ++r) {
          const int row = thread / 32 * 16 + thread % 32 / 4 + r / 2 * 8, column = thread % 4 * 2 + r % 2;
          float expected = 0;
          for (int k = 0; k < 16; ++k) expected += tiles.a[row][k] * tiles.b[column][k];
          expected = (negates ? -expected : expected) + (adds ? 1.0f : 0.0f);
          ASSERT_EQ((*out)[static_cast<size_t>(4 * thread + r)], expected) << row << " " << column;
        }
      }
    }
  }
}

TEST(PtxWarpgroupUnits, NothingAroundAProductMayBeLeftOut) {
  const auto expect = [](Steps steps, const char* what, int threads = 128) {
    const std::string fault = FaultOf(steps, threads);
    EXPECT_NE(fault.find(what), std::string::npos) << what << ": " << fault;
  };
  EXPECT_EQ(FaultOf({}), "");
  expect({.fence_tiles = "bar.sync 0;\n"}, "without fence.proxy.async");
  expect({.fence_tiles = "fence.proxy.async.shared::cta;\n"}, "no barrier between");
  expect({.fence_tiles = "bar.sync 0;\n", .between = "fence.proxy.async.shared::cta;\n"}, "without fence.proxy.async");
  EXPECT_EQ(FaultOf({.fence_tiles = "bar.sync 0; fence.proxy.async.shared::cta;\n"}), "");
  expect({.fence_registers = ""}, "without wgmma.fence");
  expect({.wait = ""}, "has not been waited for");
  expect({.close = "", .wait = "wgmma.wait_group.sync.aligned 0;\n"}, "has not been waited for");
  expect({.wait = "wgmma.wait_group.sync.aligned 1;\n"}, "has not been waited for");
  expect({.between = "add.f32 %f5, %f4, %f4;\n"}, "has not been waited for");
  expect({.between = "mov.f32 %f3, 0f00000000;\n"}, "has not been waited for");
  expect({.between = "bar.sync 0; st.shared.u32 [%r3], %r4;\n"}, "without fence.proxy.async");
  expect({.guard = "setp.lt.u32 %p2, %r0, 96;\n@%p2 "}, "without a product");
  expect({.guard = "setp.lt.u32 %p2, %r0, 100;\n@%p2 "}, "do not come");
  expect({.fill = "st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};\n"}, "never written");
}

TEST(PtxWarpgroupUnits, WhatIsOverwrittenBeforeItIsWaitedForIsNotWhatWasThere) {
  // Another warp's rows, and a fence: the write would be allowed if the product had been waited for.
  Steps steps;
  steps.between =
      "bar.sync 0; mov.u32 %r4, 0; st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4}; fence.proxy.async.shared::cta; "
      "bar.sync 0;\n";
  const auto out = RunBody<float>(steps.Body(), 128, Tiles().bytes, 512);
  ASSERT_TRUE(out.ok()) << out.status().message();
  for (const float x : *out) EXPECT_EQ(x, 0);
}

}  // namespace
}  // namespace temper::ptx::ptx_warpgroup_units_test
