#include "backend/gpu/attention/attention_path.h"

#include <fmt/core.h>

#include <mutex>
#include <set>

#include "base/log.h"

namespace temper::gpu {
namespace {

// Why matrix units do not compute it, and the remedy.
std::string WhyVectorUnits(const AttentionFacts& facts) {
  if (!facts.bf16) return "matrix units multiply bf16: --dtype bf16 uses them";
  if (facts.cap) return "our matrix-unit kernels have no softcap, and Temper has no other kernel for it";
  if (facts.head_dim > 128) return "our matrix-unit kernels take heads of up to 128, and Temper has no other kernel";
  if (facts.head_dim % 8 != 0)
    return "our matrix-unit kernels take heads of a multiple of 8, and Temper has no other kernel";
  return "this card has no matrix units for bf16 that Temper knows: use gfx90a (MI200) or newer";
}

}  // namespace

std::string DescribeAttention(const AttentionFacts& facts, bool* slow) {
  const std::string what = fmt::format("attention of {}, heads of {}: ", facts.bf16 ? "bf16" : "f32", facts.head_dim);
  *slow = facts.path == AttentionPath::kVectorUnits || facts.lacks_hopper_code;
  if (facts.path == AttentionPath::kVectorUnits) {
    return what + "by kernels without matrix units, which is slow; " + WhyVectorUnits(facts);
  }
  if (facts.lacks_hopper_code) {
    return what +
           "by mma.sync, which reaches a fraction of what wgmma does, because the program has no code for sm_90a: "
           "build it with -DCMAKE_CUDA_ARCHITECTURES=90a-real";
  }
  switch (facts.path) {
    case AttentionPath::kWarpgroups:
      return what + "by our kernels on wgmma";
    case AttentionPath::kLibrary:
      return what + "by cuDNN, by our kernels where it has no plan";
    default:
      return what + "by our kernels on matrix units";
  }
}

void SayAttentionOnce(const AttentionFacts& facts) {
  static std::mutex mutex;
  static auto* const said = new std::set<std::string>;
  bool slow = false;
  const std::string line = DescribeAttention(facts, &slow);
  const std::lock_guard lock(mutex);
  if (!said->insert(line).second) return;
  if (slow) {
    LogWarning(line);
  } else {
    LogInfo(line);
  }
}

}  // namespace temper::gpu
