#include "tensor/dynamic_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace temper::dynamic_blocks_test {
namespace {

const DynamicBlocks* const kMaps[] = {&DynamicBlocks::Signed(), &DynamicBlocks::Unsigned()};

TEST(DynamicBlocks, AreSplitWhereTheirTensorIs) {
  EXPECT_EQ(DynamicBlocksOf({64, 512}).ToString(), "u8[64, 520]");
  EXPECT_EQ(DynamicBlocksOf({64, 96}).ToString(), "u8[6240, 1]") << "blocks of several rows";
  EXPECT_EQ(DynamicBlocksOf({3, 64, 96}).ToString(), "u8[3, 6240, 1]");
  EXPECT_EQ(DynamicBlocksOf({5, 7}).ToString(), "u8[260, 1]") << "a last block is as long as the others";
  EXPECT_EQ(DynamicBlocksOf({257}).ToString(), "u8[520]");
  struct {
    Shape whole;
    Box part;
    bool fits;
    Shape begin = {};  // of its blocks
  } const cases[] = {{{64, 512}, {{32, 0}, {32, 512}}, true, {32, 0}},
                     {{64, 512}, {{0, 256}, {64, 256}}, true, {0, 260}},
                     {{64, 512}, {{16, 256}, {1, 256}}, true, {16, 260}},
                     {{64, 512}, {{0, 128}, {64, 128}}, false},
                     {{64, 96}, {{32, 0}, {32, 96}}, true, {3120, 0}},
                     {{64, 96}, {{0, 48}, {64, 48}}, false},
                     {{64, 96}, {{0, 0}, {4, 96}}, false},
                     {{3, 64, 96}, {{2, 32, 0}, {1, 32, 96}}, true, {2, 3120, 0}},
                     {{5, 7}, {{0, 0}, {5, 7}}, true, {0, 0}},
                     {{5, 7}, {{0, 0}, {4, 7}}, false}};
  for (const auto& [whole, part, fits, begin] : cases) {
    EXPECT_EQ(HasWholeBlocks(whole, part), fits) << whole.ToString() << part.begin.ToString();
    if (!fits) continue;
    EXPECT_EQ(BeginOfBlocks(whole, part.begin).ToString(), begin.ToString());
    if (part.shape == whole) continue;
    // A part's blocks have its own type: what the part's rank computes is a part of the whole's.
    const Shape blocks = DynamicBlocksOf(whole).shape, own = DynamicBlocksOf(part.shape).shape;
    for (int d = 0; d < whole.rank(); ++d) {
      EXPECT_EQ(own[d] * whole[d], blocks[d] * part.shape[d]) << whole.ToString() << " dim " << d;
    }
  }
}

TEST(DynamicBlocks, CodesAreThoseOfTheNearestNumbers) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> unit(-1, 1);
  for (const DynamicBlocks* blocks : kMaps) {
    const auto expect_nearest = [&](float x) {
      int code = 0;
      while (code < 255 && blocks->border(code) < x) ++code;
      ASSERT_EQ(blocks->CodeOf(x), code) << x;
    };
    for (int i = 0; i < 255; ++i) {
      const float border = blocks->border(i);
      for (const float x : {border, std::nextafter(border, -2.0f), std::nextafter(border, 2.0f)}) expect_nearest(x);
    }
    for (int i = 0; i < 20000; ++i) expect_nearest(std::ldexp(unit(engine), -i % 30));
    for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, std::nextafter(1.0f, 2.0f)}) expect_nearest(x);
  }
}

TEST(DynamicBlocks, ReadWhatWasWrittenWithinTheErrorOfTheirMap) {
  std::mt19937 engine(2);
  std::normal_distribution<float> normal(0, 3);
  for (const DynamicBlocks* blocks : kMaps) {
    const bool is_signed = blocks == kMaps[0];
    for (const int64_t n : {1, 100, 256}) {
      std::vector<float> x(static_cast<size_t>(n)), back = x;
      float absmax = 0;
      for (float& v : x) {
        v = is_signed ? normal(engine) : std::fabs(normal(engine));
        absmax = std::max(absmax, std::fabs(v));
      }
      std::byte block[kDynamicBlockBytes];
      std::fill(std::begin(block), std::end(block), std::byte{0x5A});
      blocks->Write(x.data(), n, block);
      blocks->Read(block, n, back.data());
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(back[i], x[i], (is_signed ? 0.0071f : 0.0036f) * absmax) << i << " of " << n;
      }
      for (int64_t i = n; i < kDynamicBlock; ++i) EXPECT_EQ(block[i], std::byte{0});
    }
  }
}

TEST(DynamicBlocks, KeepZerosAndWhatIsNoNumber) {
  std::byte block[kDynamicBlockBytes] = {};
  float back[3];
  for (const DynamicBlocks* blocks : kMaps) {
    const float zeros[3] = {}, bad[3] = {1, NAN, 2}, infinite[3] = {1, INFINITY, 2};
    blocks->Write(zeros, 3, block);
    blocks->Read(block, 3, back);
    for (const float x : back) EXPECT_EQ(x, 0);
    for (const auto* given : {&bad, &infinite}) {
      blocks->Write(*given, 3, block);
      blocks->Read(block, 3, back);
      for (const float x : back) EXPECT_FALSE(std::isfinite(x));
    }
  }
}

}  // namespace
}  // namespace temper::dynamic_blocks_test
