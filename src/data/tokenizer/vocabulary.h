// Vocabulary: token spellings and ids, both ways. One arena of text, so 10^5 tokens cost no 10^5 allocations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"

namespace temper {

// A larger id means a broken file: this is 32 times the largest known vocabulary (262,144), and 96 MiB of tables.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 23) - 1;

// Immutable after Create; any thread.
class Vocabulary {
 public:
  // Tokens may share an id (the last one is its spelling) but not a spelling. `where` names the file in errors.
  static Result<Vocabulary> Create(const std::vector<std::pair<std::string_view, int64_t>>& tokens,
                                   const std::string& where);

  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::optional<int32_t> Find(std::string_view token) const {
    const auto it = ids_.find(token);
    if (it == ids_.end()) return std::nullopt;
    return it->second;
  }
  bool Has(int32_t id) const { return id >= 0 && id < limit() && spellings_[id].data() != nullptr; }
  std::string_view Spelling(int32_t id) const { return Has(id) ? spellings_[id] : std::string_view(); }
  int64_t limit() const { return static_cast<int64_t>(spellings_.size()); }  // largest id + 1
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }         // number of spellings
  const std::unordered_map<std::string_view, int32_t>& ids() const { return ids_; }

 private:
  Vocabulary() = default;

  std::vector<char> arena_;  // what the views point into; a vector's storage stays where it is when moved
  std::vector<std::string_view> spellings_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace temper
