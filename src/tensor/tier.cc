#include "tensor/tier.h"

#include <array>

namespace temper {
namespace {

constexpr std::array<std::string_view, kNumTiers> kTierNames = {"device", "host", "disk"};

}  // namespace

std::string_view ToString(Tier tier) {
  return kTierNames[static_cast<size_t>(tier)];
}

std::optional<Tier> ParseTier(std::string_view text) {
  for (size_t i = 0; i < kTierNames.size(); ++i) {
    if (kTierNames[i] == text) return static_cast<Tier>(i);
  }
  return std::nullopt;
}

}  // namespace temper
