// TokenStore: every sample of a data set, tokenised, in one flat array: 4 bytes and 1 bit per token, 8 bytes per
// sample; another 4 bytes per token if some token's weight is not 1.
//
// Attention stays within a sample: one row of the data set, or one window of a long text. Samples never change once
// added. Any thread may read; one thread may Add while no other reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "data/token_weight.h"

namespace temper {

class TokenStore {
 public:
  // supervised[i]: predicting tokens[i] is part of the loss. Nothing predicts the first token of a sample, so its flag
  // is stored as 0. weights[i]: how much that counts; empty: 1. REQUIRES: at least one token; as many flags; as many
  // weights, or none; no supervised token has weight 0.
  void Add(std::span<const int32_t> tokens, std::span<const uint8_t> supervised,
           std::span<const TokenWeight> weights = {});

  int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t length(int64_t sample) const { return offsets_[At(sample) + 1] - offsets_[At(sample)]; }
  std::span<const int32_t> tokens(int64_t sample) const {
    return std::span(tokens_).subspan(static_cast<size_t>(offsets_[At(sample)]), static_cast<size_t>(length(sample)));
  }
  bool supervised(int64_t sample, int64_t i) const {
    const auto bit = static_cast<uint64_t>(offsets_[At(sample)] + i);
    return (supervised_[bit / 64] >> (bit % 64)) & 1;
  }

  // REQUIRES: supervised(sample, i).
  TokenWeight weight(int64_t sample, int64_t i) const {
    return weights_.empty() ? kUnitWeight : weights_[static_cast<size_t>(offsets_[At(sample)] + i)];
  }
  bool weighted() const { return !weights_.empty(); }  // some supervised token's weight is not 1

  int64_t total_tokens() const { return offsets_.back(); }
  int64_t total_supervised() const { return total_supervised_; }
  int64_t longest() const { return longest_; }
  Bytes memory() const;  // touched; growth reserves more addresses, but no memory for them

  // For copying a store to other processes: calls body(vector) for each of its arrays, until one fails. Whatever body
  // writes into them becomes the content. REQUIRES: the arrays fit together.
  template <class Body>
  Status ForArrays(const Body& body) {
    TEMPER_RETURN_IF_ERROR(body(tokens_));
    TEMPER_RETURN_IF_ERROR(body(supervised_));
    TEMPER_RETURN_IF_ERROR(body(offsets_));
    TEMPER_RETURN_IF_ERROR(body(weights_));
    Recount();
    return OkStatus();
  }

  // Hash of all tokens, flags, borders and weights: a resumed run compares it to detect changed data.
  uint64_t Fingerprint() const;

 private:
  void Recount();  // recomputes what follows from the arrays
  static size_t At(int64_t sample) { return static_cast<size_t>(sample); }

  std::vector<int32_t> tokens_;
  std::vector<uint64_t> supervised_;  // bit i: token i of tokens_
  std::vector<int64_t> offsets_ = {0};
  std::vector<TokenWeight> weights_;  // of tokens_; kUnitWeight if not supervised; empty if all are
  int64_t total_supervised_ = 0;
  int64_t longest_ = 0;
};

}  // namespace temper
