#include "backend/gpu/attention/attention_path.h"

#include <gtest/gtest.h>

namespace temper::gpu::attention_path_test {
namespace {

TEST(AttentionPath, ASlowWayNamesItsReasonAndItsRemedy) {
  struct Row {
    AttentionFacts facts;
    const char *reason, *remedy;
  };
  for (const Row& row : {
           Row{{AttentionPath::kVectorUnits, 64, false}, "multiply bf16", "--dtype bf16"},
           Row{{AttentionPath::kVectorUnits, 256, true}, "up to 128", "no other kernel"},
           Row{{AttentionPath::kVectorUnits, 100, true}, "multiple of 8", "no other kernel"},
           Row{{AttentionPath::kVectorUnits, 64, true, true}, "softcap", "no other kernel"},
           Row{{AttentionPath::kVectorUnits, 64, true}, "no matrix units", "gfx90a"},
           Row{{AttentionPath::kMatrixUnits, 128, true, false, true}, "no code for sm_90a", "=90a-real"},
       }) {
    bool slow = false;
    const std::string line = DescribeAttention(row.facts, &slow);
    EXPECT_TRUE(slow) << line;
    EXPECT_NE(line.find(row.reason), std::string::npos) << line;
    EXPECT_NE(line.find(row.remedy), std::string::npos) << line;
  }
}

TEST(AttentionPath, AFastWayIsNamed) {
  for (const auto& [path, name] :
       {std::pair(AttentionPath::kWarpgroups, "wgmma"), std::pair(AttentionPath::kMatrixUnits, "matrix units"),
        std::pair(AttentionPath::kLibrary, "cuDNN")}) {
    bool slow = true;
    const std::string line = DescribeAttention({.path = path, .head_dim = 128}, &slow);
    EXPECT_FALSE(slow) << line;
    EXPECT_NE(line.find(name), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace temper::gpu::attention_path_test
