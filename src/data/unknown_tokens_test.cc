#include "data/unknown_tokens.h"

#include <gtest/gtest.h>

namespace temper::unknown_tokens_test {
namespace {

using Counts = std::vector<std::pair<std::string, int64_t>>;

TEST(UnknownTokens, CharactersHaveNamesThatALineCanShow) {
  UnknownTokens unknown;
  unknown.AddTexts(std::vector<std::string>{"\n\xE2\x98\x83\xE2\x98\x83\t", "", "\xC2\xA0", "\x1b\xE2+"});
  EXPECT_EQ(unknown.MostFrequent(),
            (Counts{{"\xE2\x98\x83", 2}, {"+", 1}, {"U+00A0", 1}, {"\\n", 1}, {"\\t", 1}, {"\\x1b", 1}, {"\\xe2", 1}}));
}

TEST(UnknownTokens, AddUpAndShowTheEightMostFrequentCharacters) {
  UnknownTokens sum, other{.token = "<unk>", .count = 2};
  sum.AddTexts(std::vector<std::string>{"hgfedcba"});
  other.AddTexts(std::vector<std::string>{"ix"});
  other.AddTexts(std::vector<std::string>{"xxj"});
  sum.Add(other);
  EXPECT_EQ(sum.token, "<unk>");
  EXPECT_EQ(sum.count, 2);
  EXPECT_EQ(sum.MostFrequent(),
            (Counts{{"x", 3}, {"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}}));
}

}  // namespace
}  // namespace temper::unknown_tokens_test
