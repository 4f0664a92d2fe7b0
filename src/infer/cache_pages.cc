#include "infer/cache_pages.h"

#include "base/check.h"

namespace temper {

CachePages::CachePages(int64_t pages) : users_(static_cast<size_t>(pages)) {
  free_.reserve(users_.size());
  for (int64_t page = pages - 1; page >= 0; --page) free_.push_back(static_cast<int32_t>(page));
}

int32_t CachePages::Take() {
  TEMPER_CHECK(!free_.empty());
  const int32_t page = free_.back();
  free_.pop_back();
  users_[static_cast<size_t>(page)] = 1;
  return page;
}

void CachePages::Release(int32_t page) {
  TEMPER_CHECK(users_[static_cast<size_t>(page)] > 0) << page;
  if (--users_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

}  // namespace temper
