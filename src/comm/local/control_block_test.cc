#include "comm/local/control_block.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace temper::control_block_test {
namespace {

// Memory of zeros, as a fresh mapping is.
class ControlBlockTest : public testing::Test {
 protected:
  static constexpr int kRanks = 2;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  static std::byte* Zeros() {
    const auto size = static_cast<size_t>(ControlBlock::SizeFor(kRanks).v);
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, size));
    std::memset(memory, 0, size);
    return memory;
  }
  const std::unique_ptr<std::byte, Free> memory_{Zeros()};
  const ControlBlock control_{memory_.get(), kRanks};
};

TEST_F(ControlBlockTest, TheFirstCauseStopsTheRunForAll) {
  EXPECT_TRUE(control_.Cause().ok());
  EXPECT_TRUE(control_.Stop(IoError("the first"), 1));
  EXPECT_FALSE(control_.Stop(IoError("the second"), 0));
  EXPECT_TRUE(control_.stopped());
  EXPECT_EQ(control_.Cause().message(), "the first");
  EXPECT_EQ(control_.reporter(), 1);
}

// Its state is the first word of the block; 1 is that somebody has begun to write a cause.
TEST_F(ControlBlockTest, OneWhoWasKilledWhileHeWroteTheCauseHoldsUpNobody) {
  reinterpret_cast<std::atomic<uint32_t>*>(memory_.get())->store(1);
  EXPECT_FALSE(control_.stopped());
  EXPECT_TRUE(control_.Stop(IoError("his successor"), 0));
  EXPECT_EQ(control_.Cause().message(), "his successor");
}

}  // namespace
}  // namespace temper::control_block_test
