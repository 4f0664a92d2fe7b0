#include "backend/cpu/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace temper::isa_test {
namespace {

class IsaCap : public testing::Test {
 protected:
  void SetUp() override { unsetenv("ONEDNN_MAX_CPU_ISA"), unsetenv("DNNL_MAX_CPU_ISA"); }
  void TearDown() override { SetUp(); }
};

TEST_F(IsaCap, ObeysTheCapThatOneDnnObeys) {
  const Isa fastest = DetectIsa(), highest = RunnableIsas().back();
  const std::pair<const char*, Isa> caps[] = {{"SSE41", Isa::kScalar},
                                              {"AVX", Isa::kScalar},
                                              {"avx2", Isa::kAvx2},
                                              {"AVX2_VNNI_2", Isa::kAvx2},
                                              {"AVX512_CORE", Isa::kAvx512},
                                              {"AVX512_CORE_VNNI", Isa::kAvx512},
                                              {"AVX512_CORE_BF16", Isa::kAvx512Bf16Dot},
                                              {"AVX512_CORE_FP16", Isa::kAvx512Bf16Dot},
                                              {"AVX10_1_512", Isa::kAvx512Bf16Dot},
                                              {"AVX512_CORE_AMX", Isa::kAmxBf16},
                                              {"AVX10_1_512_AMX", Isa::kAmxBf16},
                                              {"ALL", Isa::kAmxBf16},
                                              {"no such set", Isa::kAmxBf16}};
  for (const auto& [name, cap] : caps) {
    setenv("ONEDNN_MAX_CPU_ISA", name, 1);
    // Below AMX, what the vectors of such a processor do best.
    EXPECT_EQ(DetectIsa(), cap < fastest ? std::min(VectorIsa(fastest), cap) : fastest) << name;
    EXPECT_EQ(RunnableIsas().back(), std::min(highest, cap)) << name;
  }
}

// A machine with vdpbf16ps may have it slow, and no other level is left out.
TEST_F(IsaCap, TheFastestLevelIsTheHighestButForSlowDots) {
  const Isa highest = RunnableIsas().back();
  EXPECT_TRUE(DetectIsa() == highest || (highest == Isa::kAvx512Bf16Dot && DetectIsa() == Isa::kAvx512Bf16))
      << ToString(DetectIsa()) << " of " << ToString(highest);
}

TEST_F(IsaCap, NamesReadBack) {
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAvx512Bf16Dot, Isa::kAmxBf16}) {
    EXPECT_EQ(ParseIsa(ToString(isa)), isa);
  }
  EXPECT_EQ(ParseIsa("avx1024"), std::nullopt);
}

}  // namespace
}  // namespace temper::isa_test
