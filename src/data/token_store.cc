#include "data/token_store.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"

namespace temper {

void TokenStore::Add(std::span<const int32_t> tokens, std::span<const uint8_t> supervised,
                     std::span<const TokenWeight> weights) {
  TEMPER_CHECK(tokens.size() == supervised.size() && !tokens.empty())
      << tokens.size() << " tokens, " << supervised.size() << " flags";
  TEMPER_CHECK(weights.empty() || weights.size() == tokens.size())
      << tokens.size() << " tokens, " << weights.size() << " weights";
  const auto begin = static_cast<uint64_t>(offsets_.back());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  supervised_.resize((tokens_.size() + 63) / 64, 0);
  for (size_t i = 1; i < supervised.size(); ++i) {
    if (!supervised[i]) continue;
    supervised_[(begin + i) / 64] |= uint64_t{1} << ((begin + i) % 64);
    ++total_supervised_;
  }
  for (size_t i = 1; i < weights.size(); ++i) {
    if (!supervised[i] || weights[i] == kUnitWeight) continue;
    TEMPER_CHECK(weights[i] > 0 && weights[i] <= kLargestWeight) << "weight " << weights[i] << " of token " << i;
    weights_.resize(tokens_.size(), kUnitWeight);
    weights_[begin + i] = weights[i];
  }
  if (!weights_.empty()) weights_.resize(tokens_.size(), kUnitWeight);
  offsets_.push_back(static_cast<int64_t>(tokens_.size()));
  longest_ = std::max(longest_, static_cast<int64_t>(tokens.size()));
}

Bytes TokenStore::memory() const {
  return Bytes{static_cast<int64_t>(tokens_.size() * sizeof(int32_t) + supervised_.size() * sizeof(uint64_t) +
                                    offsets_.size() * sizeof(int64_t) + weights_.size() * sizeof(TokenWeight))};
}

void TokenStore::Recount() {
  total_supervised_ = longest_ = 0;
  for (const uint64_t word : supervised_) total_supervised_ += std::popcount(word);
  for (int64_t s = 0; s < size(); ++s) longest_ = std::max(longest_, length(s));
}

uint64_t TokenStore::Fingerprint() const {
  const auto hash = [](const auto& v, uint64_t seed) { return XXH64(v.data(), v.size() * sizeof(v[0]), seed); };
  const uint64_t print = hash(tokens_, hash(supervised_, hash(offsets_, 0)));
  return weights_.empty() ? print : hash(weights_, print);
}

}  // namespace temper
