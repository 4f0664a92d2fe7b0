// Tier: the kinds of memory a value may lie in. Nearer ones are faster and smaller.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace temper {

enum class Tier : uint8_t {
  kDevice,  // of the processor that runs kernels; on the CPU backend an arena of a size that is asked for
  kHost,    // the machine's
  kDisk,    // a file: kernels cannot touch what lies there
};
inline constexpr int kNumTiers = 3;

std::string_view ToString(Tier tier);  // "device"
std::optional<Tier> ParseTier(std::string_view text);

}  // namespace temper
