// TokenTrie: the spellings of a vocabulary as a tree of bytes, to find all tokens that begin at a place of a text, or
// the longest. 9 bytes for each byte that no two spellings share.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/vocabulary.h"

namespace temper {

// Immutable after Create; any thread.
class TokenTrie {
 public:
  // Searches take up to this many steps for each byte of a text, so longer tokens are refused: real ones have less than
  // 128 bytes.
  static constexpr size_t kMaxToken = 1024;
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = 0;  // no node leads back to the root

  // `where` names the file in errors.
  static Result<TokenTrie> Create(const Vocabulary& vocabulary, const std::string& where);

  // The node that `byte` leads to, or kNone.
  uint32_t Next(uint32_t node, unsigned char byte) const {
    if (node == kRoot) return from_root_[byte];
    uint32_t begin = first_[node];
    uint32_t end = first_[node + 1];
    while (end - begin > kScanned) {
      const uint32_t middle = begin + (end - begin) / 2;
      (bytes_[middle] <= byte ? begin : end) = middle;
    }
    for (; begin < end; ++begin) {
      if (bytes_[begin] == byte) return begin;
    }
    return kNone;
  }
  // The token that ends at a node; -1: none.
  int32_t IdAt(uint32_t node) const { return ids_[node]; }

 private:
  static constexpr uint32_t kScanned = 8;  // a search by halves ends here

  TokenTrie() = default;

  // By node, in the order of their depth: children of one node lie side by side, in the order of their bytes.
  std::vector<uint32_t> first_;  // first child; one more at the end
  std::vector<unsigned char> bytes_;
  std::vector<int32_t> ids_;
  std::array<uint32_t, 256> from_root_{};
};

}  // namespace temper
