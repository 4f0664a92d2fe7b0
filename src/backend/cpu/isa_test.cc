#include "backend/cpu/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace temper {
namespace {

class IsaCap : public testing::Test {
 protected:
  void SetUp() override { unsetenv("ONEDNN_MAX_CPU_ISA"), unsetenv("DNNL_MAX_CPU_ISA"); }
  void TearDown() override { SetUp(); }
};

TEST_F(IsaCap, ObeysTheCapThatOneDnnObeys) {
  const Isa machine = DetectIsa();
  const std::pair<const char*, Isa> caps[] = {{"SSE41", Isa::kScalar},
                                              {"AVX", Isa::kScalar},
                                              {"avx2", Isa::kAvx2},
                                              {"AVX512_CORE", Isa::kAvx512},
                                              {"AVX512_CORE_VNNI", Isa::kAvx512},
                                              {"AVX512_CORE_BF16", Isa::kAvx512Bf16},
                                              {"ALL", Isa::kAvx512Bf16},
                                              {"no such set", Isa::kAvx512Bf16}};
  for (const auto& [name, cap] : caps) {
    setenv("ONEDNN_MAX_CPU_ISA", name, 1);
    EXPECT_EQ(DetectIsa(), std::min(machine, cap)) << name;
    EXPECT_EQ(RunnableIsas().back(), DetectIsa());
  }
}

TEST_F(IsaCap, NamesReadBack) {
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) EXPECT_EQ(ParseIsa(ToString(isa)), isa);
  EXPECT_EQ(ParseIsa("avx1024"), std::nullopt);
}

}  // namespace
}  // namespace temper
