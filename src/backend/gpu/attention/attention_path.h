// Which kernels compute a run's attention, and why not the fast ones.
#pragma once

#include <cstdint>
#include <string>

namespace temper::gpu {

enum class AttentionPath : uint8_t { kWarpgroups, kMatrixUnits, kLibrary, kVectorUnits };

struct AttentionFacts {
  AttentionPath path;
  int64_t head_dim = 0;
  bool bf16 = true, cap = false;
  bool lacks_hopper_code = false;  // the card has wgmma, the program no code for it
};

// One line. `*slow`: it names the reason and the remedy.
std::string DescribeAttention(const AttentionFacts& facts, bool* slow);

// Logs DescribeAttention, a warning if it is slow, the first time in this process. Thread-safe.
void SayAttentionOnce(const AttentionFacts& facts);

}  // namespace temper::gpu
