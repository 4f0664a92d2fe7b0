#include "data/tokenizer/token_trie.h"

#include <fmt/core.h>

#include <algorithm>

namespace temper {

Result<TokenTrie> TokenTrie::Create(const Vocabulary& vocabulary, const std::string& where) {
  std::vector<std::pair<std::string_view, int32_t>> tokens(vocabulary.ids().begin(), vocabulary.ids().end());
  std::sort(tokens.begin(), tokens.end());
  for (const auto& [token, id] : tokens) {
    if (token.size() <= kMaxToken) continue;
    return Unsupported(
        fmt::format("{}: the token {} has {} bytes; at most {} are supported", where, id, token.size(), kMaxToken));
  }
  // A node is a range of tokens that begin alike.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, tokens.size(), 0}};
  TokenTrie trie;
  trie.bytes_.push_back(0);
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [at, end, depth] = ranges[node];
    trie.first_.push_back(static_cast<uint32_t>(ranges.size()));
    trie.ids_.push_back(-1);
    // No spelling occurs twice; the empty one is no token of any text.
    if (at < end && tokens[at].first.size() == depth) trie.ids_[node] = depth > 0 ? tokens[at++].second : (++at, -1);
    while (at < end) {
      const char byte = tokens[at].first[depth];
      size_t behind = at;
      while (behind < end && tokens[behind].first[depth] == byte) ++behind;
      if (node == kRoot) trie.from_root_[static_cast<unsigned char>(byte)] = static_cast<uint32_t>(ranges.size());
      ranges.push_back({at, behind, depth + 1});
      trie.bytes_.push_back(static_cast<unsigned char>(byte));
      at = behind;
    }
  }
  trie.first_.push_back(static_cast<uint32_t>(ranges.size()));
  return trie;
}

}  // namespace temper
