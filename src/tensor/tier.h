// Tier: the kinds of memory a value may lie in. Nearer ones are faster and smaller.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.h"

namespace temper {

enum class Tier : uint8_t {
  kDevice,  // of the processor that runs kernels; on the CPU backend an arena of a size that is asked for
  kHost,    // the machine's
  kDisk,    // a file: kernels cannot touch what lies there
};
inline constexpr int kNumTiers = 3;

// Chunks in flight between the host and the disk, of reads and of writes each, and the buffer of one: a plan counts
// them, disk/disk_tier.cc says why so many.
inline constexpr int kDiskChunks = 8;
inline constexpr Bytes kDiskBuffer = MiB(1);
// Host memory that they take, for what is read, and for what is written where something is.
constexpr Bytes DiskBuffers(bool spills) {
  return kDiskBuffer * kDiskChunks * (spills ? 2 : 1);
}

std::string_view ToString(Tier tier);  // "device"
std::optional<Tier> ParseTier(std::string_view text);

}  // namespace temper
