#include "data/tokenizer/vocabulary.h"

#include <fmt/core.h>

#include <algorithm>

namespace temper {

Result<Vocabulary> Vocabulary::Create(const std::vector<std::pair<std::string_view, int64_t>>& tokens,
                                      const std::string& where) {
  size_t bytes = 1;  // one spare byte, so that an empty token's view still points somewhere
  int64_t largest = -1;
  for (const auto& [token, id] : tokens) {
    if (id < 0 || id > kMaxTokenId) {
      return Corrupt(fmt::format("{}: token '{}' has the id {}; ids run from 0 to {}", where, token, id, kMaxTokenId));
    }
    bytes += token.size();
    largest = std::max(largest, id);
  }
  Vocabulary v;
  v.arena_.resize(bytes);
  v.spellings_.resize(static_cast<size_t>(largest + 1));
  v.ids_.reserve(tokens.size());
  size_t used = 0;
  for (const auto& [token, id] : tokens) {
    std::copy(token.begin(), token.end(), v.arena_.begin() + static_cast<ptrdiff_t>(used));
    const std::string_view kept(v.arena_.data() + used, token.size());
    used += token.size();
    if (!v.ids_.emplace(kept, static_cast<int32_t>(id)).second) {
      return Corrupt(fmt::format("{}: the token '{}' occurs twice", where, token));
    }
    v.spellings_[static_cast<size_t>(id)] = kept;
  }
  return v;
}

}  // namespace temper
