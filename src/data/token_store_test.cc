#include "data/token_store.h"

#include <gtest/gtest.h>

#include <random>

namespace temper {
namespace {

TEST(TokenStore, GivesBackWhatWasAdded) {
  std::mt19937 random(1);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<uint8_t>> flags;
  TokenStore store;
  int64_t total = 0, supervised = 0;
  for (int s = 0; s < 200; ++s) {
    const size_t n = 1 + random() % 150;
    auto& t = tokens.emplace_back(n);
    auto& f = flags.emplace_back(n);
    for (size_t i = 0; i < n; ++i) {
      t[i] = static_cast<int32_t>(random() % 100000);
      f[i] = random() % 2;
      supervised += i > 0 && f[i];
    }
    total += static_cast<int64_t>(n);
    store.Add(t, f);
  }
  ASSERT_EQ(store.size(), 200);
  EXPECT_EQ(store.total_tokens(), total);
  EXPECT_EQ(store.total_supervised(), supervised);
  for (int64_t s = 0; s < store.size(); ++s) {
    const auto& t = tokens[static_cast<size_t>(s)];
    ASSERT_TRUE(std::equal(t.begin(), t.end(), store.tokens(s).begin(), store.tokens(s).end()));
    for (int64_t i = 0; i < store.length(s); ++i) {
      // Nothing predicts the first token of a sample.
      ASSERT_EQ(store.supervised(s, i), i > 0 && flags[static_cast<size_t>(s)][static_cast<size_t>(i)]);
    }
  }
  EXPECT_LE(store.memory().v, total * 4 + total / 8 + 201 * 8 + 64);
}

TEST(TokenStore, KeepsWeightsOnlyIfOneIsNotOne) {
  using Tokens = std::vector<int32_t>;
  using Flags = std::vector<uint8_t>;
  using Weights = std::vector<TokenWeight>;
  TokenStore plain, ones, some;
  for (TokenStore* store : {&plain, &ones, &some}) store->Add(Tokens{1, 2, 3}, Flags{0, 1, 1});
  plain.Add(Tokens{4, 5, 6}, Flags{0, 0, 1});
  ones.Add(Tokens{4, 5, 6}, Flags{0, 0, 1}, Weights{7, 0, kUnitWeight});  // masked tokens' weights do not count
  some.Add(Tokens{4, 5, 6}, Flags{0, 0, 1}, Weights{7, 0, kUnitWeight / 2});
  for (TokenStore* store : {&plain, &ones, &some}) store->Add(Tokens{7, 8}, Flags{0, 1});
  EXPECT_FALSE(plain.weighted());
  EXPECT_FALSE(ones.weighted());
  EXPECT_EQ(ones.Fingerprint(), plain.Fingerprint());
  EXPECT_EQ(ones.memory(), plain.memory());
  EXPECT_EQ(ones.weight(1, 2), kUnitWeight);
  EXPECT_TRUE(some.weighted());
  EXPECT_NE(some.Fingerprint(), plain.Fingerprint());
  EXPECT_EQ(some.weight(1, 2), kUnitWeight / 2);
  EXPECT_EQ(some.weight(0, 1), kUnitWeight);
  EXPECT_EQ(some.weight(2, 1), kUnitWeight);
  // A copy of the arrays is a copy of the store.
  TokenStore copy;
  std::vector<std::vector<std::byte>> arrays;
  (void)some.ForArrays([&](auto& v) {
    const auto bytes = std::as_bytes(std::span(v));
    arrays.emplace_back(bytes.begin(), bytes.end());
    return OkStatus();
  });
  size_t next = 0;
  (void)copy.ForArrays([&]<class T>(std::vector<T>& v) {
    const auto* from = reinterpret_cast<const T*>(arrays[next].data());
    v.assign(from, from + arrays[next++].size() / sizeof(T));
    return OkStatus();
  });
  EXPECT_EQ(copy.Fingerprint(), some.Fingerprint());
  EXPECT_EQ(copy.weight(1, 2), kUnitWeight / 2);
}

TEST(TokenStore, FingerprintChangesWithTokensFlagsAndBorders) {
  const auto print = [](std::vector<std::vector<int32_t>> samples, uint8_t flag) {
    TokenStore store;
    for (const auto& s : samples) store.Add(s, std::vector<uint8_t>(s.size(), flag));
    return store.Fingerprint();
  };
  const uint64_t base = print({{1, 2, 3}, {4}}, 1);
  EXPECT_EQ(print({{1, 2, 3}, {4}}, 1), base);
  EXPECT_NE(print({{1, 2, 4}, {4}}, 1), base);
  EXPECT_NE(print({{1, 2, 3}, {4}}, 0), base);
  EXPECT_NE(print({{1, 2}, {3, 4}}, 1), base);
  EXPECT_EQ(TokenStore().Fingerprint(), TokenStore().Fingerprint());
}

}  // namespace
}  // namespace temper
