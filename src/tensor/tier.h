// Tier: the kinds of memory a value may live in. Nearer ones are faster and smaller.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.h"

namespace temper {

enum class Tier : uint8_t {
  kDevice,  // of the processor that runs kernels; on the CPU backend an arena of a size that can be set
  kHost,    // the machine's
  kDisk,    // a file: kernels cannot touch it
};
inline constexpr int kNumTiers = 3;

// Chunks in flight between host and disk, for reads and for writes each, and the buffer of one. A plan counts them;
// disk/disk_tier.cc says why so many.
inline constexpr int kDiskChunks = 8;
inline constexpr Bytes kDiskBuffer = MiB(1);
// Host memory that they take, for reads, and for writes where something is written.
constexpr Bytes DiskBuffers(bool spills) {
  return kDiskBuffer * kDiskChunks * (spills ? 2 : 1);
}

std::string_view ToString(Tier tier);  // "device"
std::optional<Tier> ParseTier(std::string_view text);

}  // namespace temper
