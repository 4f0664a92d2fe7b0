// How a step is made to fit into memory: what users choose of it. compile/memory applies it.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace temper {

enum class TierPolicy : uint8_t {
  kAuto,    // the device for the values that gain most from it, farther tiers for the rest
  kDevice,  // everything on the device
  kHost,    // weights, gradients and optimizer states live on the host and are fetched for each use
};

// How a step that computes in bf16 holds the matrices that it trains (compile/memory/cast_weights.h).
enum class TrainedMatrices : uint8_t {
  kAuto,    // stored; if that does not fit on the device, whichever is faster by estimate
  kStored,  // in bf16, beside their f32 masters
  kCast,    // each use makes them from their masters, which stay on the device
};

enum class Recompute : uint8_t {
  kAuto,  // the fastest within the memory limits (compile/memory/memory_policy.h); kNone without limits
  kNone,
  kSelective,  // cheap nodes: norms, activations, rope, dropout, casts; never a product or attention
  kBlock,      // all nodes: between a block's forward and its backward only the block's inputs are kept
};

std::string_view ToString(Recompute mode);  // "selective"

inline constexpr int kAllBlocks = std::numeric_limits<int>::max();

}  // namespace temper
