#include "infer/cache_pages.h"

#include <gtest/gtest.h>

#include <set>

namespace temper::cache_pages_test {
namespace {

TEST(CachePages, APageIsFreeWhenItsLastUserLetsGo) {
  CachePages pages(3);
  const int32_t a = pages.Take(), b = pages.Take();
  EXPECT_EQ(pages.num_free(), 1);
  pages.Share(a);
  EXPECT_TRUE(pages.IsShared(a));
  EXPECT_FALSE(pages.IsShared(b));
  pages.Release(a);
  EXPECT_FALSE(pages.IsShared(a));
  EXPECT_EQ(pages.num_free(), 1);
  pages.Release(a);
  EXPECT_EQ(pages.num_free(), 2);
  EXPECT_EQ((std::set<int32_t>{pages.Take(), pages.Take(), b}), (std::set<int32_t>{0, 1, 2}));
}

}  // namespace
}  // namespace temper::cache_pages_test
