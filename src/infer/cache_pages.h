// CachePages: which pages of a decoding cache are in use, and by how many sequences. A page with several users holds
// the same tokens for all of them and must not be written. Allocates nothing after construction. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace temper {

class CachePages {
 public:
  explicit CachePages(int64_t pages);

  // A free page with one user. REQUIRES: there is one.
  int32_t Take();
  // One user more of a page in use.
  void Share(int32_t page) { ++users_[static_cast<size_t>(page)]; }
  // One user less; without any it is free.
  void Release(int32_t page);
  bool IsShared(int32_t page) const { return users_[static_cast<size_t>(page)] > 1; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }

 private:
  std::vector<int32_t> users_;
  std::vector<int32_t> free_;  // the next to take is the last
};

}  // namespace temper
