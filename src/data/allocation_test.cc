// A new epoch may begin between two training steps, where nothing may be allocated: this counts allocations.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <numeric>
#include <vector>

#include "data/batch.h"
#include "data/sampler.h"
#include "data/token_memory.h"

#ifndef TEMPER_SANITIZED  // sanitizers define these operators themselves

namespace {
thread_local int64_t allocations = 0;
}

void* operator new(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size ? size : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  operator delete(p);
}

namespace temper::allocation_test {
namespace {

TEST(Sampler, AllocatesNothingFromBatchToBatchAndEpochToEpoch) {
  for (const bool packing : {true, false}) {
    MemoryTokens made;
    for (int s = 0; s < 300; ++s) {
      const std::vector<int32_t> tokens(1 + static_cast<size_t>(s) * 31 % 60, s);
      made.Add(tokens, std::vector<uint8_t>(tokens.size(), 1));
    }
    const TokenStore store = made.Store();
    std::vector<int32_t> ids(300);
    std::iota(ids.begin(), ids.end(), 0);
    Sampler sampler(store, ids, {.max_seq_len = 64, .packing = packing}, 1);
    std::vector<int32_t> tokens(4 * 64), targets(4 * 64);
    const std::vector<ColumnArray> columns = {
        {FillerOf(kTokenColumn.name), std::as_writable_bytes(std::span(tokens))},
        {FillerOf(kTargetColumn.name), std::as_writable_bytes(std::span(targets))}};
    const int64_t before = allocations;
    BatchCounts counts;
    while (sampler.state().epoch < 4) {
      const auto batch = sampler.NextBatch(4);
      counts += FillBatch(store, sampler.packing(), batch.first_row, batch.rows, 4 * 64, columns);
    }
    EXPECT_TRUE(sampler.Restore({.seed = 9, .epoch = 7, .next_row = 3}).ok());
    EXPECT_EQ(allocations, before);
    EXPECT_GT(counts.tokens, 4 * store.total_tokens() - 1);
    EXPECT_GT(allocations, 0) << "the counter counts";
  }
}

}  // namespace
}  // namespace temper::allocation_test

#endif
