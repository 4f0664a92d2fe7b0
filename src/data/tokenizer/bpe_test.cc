#include "data/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace temper::bpe_test {
namespace {

// The definition: merge the pair of lowest rank, the leftmost of equals, until none is left.
std::vector<int32_t> ByDefinition(std::vector<int32_t> ids,
                                  const std::map<std::pair<int32_t, int32_t>, std::pair<int, int32_t>>& merges) {
  while (true) {
    size_t best = ids.size();
    int rank = 1 << 30;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = merges.find({ids[i], ids[i + 1]});
      if (it != merges.end() && it->second.first < rank) rank = it->second.first, best = i;
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, LongAndShortWordsAreMergedByTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    // A random table over {a, b, c}: every merge joins two existing tokens.
    std::vector<std::string> spellings = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 2 + 2 * round; ++i) {  // with few, many pairs of letters are joined by none
      const std::string x = spellings[random() % spellings.size()], y = spellings[random() % spellings.size()];
      if (x.size() + y.size() > 12) continue;
      if (std::find(merges.begin(), merges.end(), std::pair(x, y)) != merges.end()) continue;
      merges.emplace_back(x, y);
      if (std::find(spellings.begin(), spellings.end(), x + y) == spellings.end()) spellings.push_back(x + y);
    }
    std::vector<std::pair<std::string_view, int64_t>> tokens;
    std::map<std::string, int32_t> id_of;
    for (const std::string& s : spellings) {
      id_of[s] = static_cast<int32_t>(tokens.size());
      tokens.emplace_back(s, static_cast<int64_t>(tokens.size()));
    }
    tokens.emplace_back("<unk>", static_cast<int64_t>(tokens.size()));  // without one, no text is cut
    std::vector<Bpe::Merge> views(merges.begin(), merges.end());
    std::map<std::pair<int32_t, int32_t>, std::pair<int, int32_t>> table;
    for (size_t i = 0; i < merges.size(); ++i) {
      const auto& [x, y] = merges[i];
      table[{id_of[x], id_of[y]}] = {static_cast<int>(i), id_of[x + y]};
    }
    auto bpe = Bpe::Create(*Vocabulary::Create(tokens, "f"), views, {.unk_token = "<unk>"}, "f");
    ASSERT_TRUE(bpe.ok()) << bpe.status().message();
    BpeScratch scratch;
    for (int i = 0; i < 60; ++i) {
      std::string word;
      std::vector<int32_t> letters;
      for (size_t n = 1 + random() % (i % 2 ? 200 : 30); n > 0; --n) {
        letters.push_back(static_cast<int32_t>(random() % 3));
        word += static_cast<char>('a' + letters.back());
      }
      std::vector<int32_t> once, again;
      (*bpe)->Encode(word, scratch, once);
      (*bpe)->Encode(word, scratch, again);  // from the cache, if it is short
      EXPECT_EQ(once, ByDefinition(letters, table)) << word;
      EXPECT_EQ(once, again);
    }
  }
}

TEST(Bpe, SplittingATextAtItsSpacesChangesNoId) {
  // "b▁" crosses from a word into the next space, so with the second table the text must not be split.
  const std::vector<std::pair<std::string_view, int64_t>> tokens = {{"▁", 0},  {"a", 1},  {"b", 2},  {"▁a", 3},
                                                                    {"▁▁", 4}, {"b▁", 5}, {"ab", 6}, {"<unk>", 7}};
  const std::vector<Bpe::Merge> fine = {{"▁", "▁"}, {"▁", "a"}, {"a", "b"}};
  const std::vector<Bpe::Merge> crossing = {{"b", "▁"}, {"▁", "▁"}, {"▁", "a"}, {"a", "b"}};
  for (const auto& [merges, expected] : {std::pair(fine, std::vector<int32_t>{3, 2, 4, 3, 2, 3}),
                                         std::pair(crossing, std::vector<int32_t>{3, 5, 4, 1, 5, 1})}) {
    auto bpe = Bpe::Create(*Vocabulary::Create(tokens, "f"), merges, {.unk_token = "<unk>"}, "f");
    ASSERT_TRUE(bpe.ok());
    BpeScratch scratch;
    std::vector<int32_t> ids;
    (*bpe)->Encode("▁ab▁▁▁ab▁a", scratch, ids);
    EXPECT_EQ(ids, expected);
  }
}

// Unknown characters are fused over every place but one before a character with a token.
TEST(Bpe, CuttingATextSplitsNoRunOfUnknownCharacters) {
  const std::vector<std::pair<std::string_view, int64_t>> tokens = {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}};
  BpeOptions options;
  options.unk_token = "<unk>";
  options.fuse_unk = true;
  auto bpe = Bpe::Create(*Vocabulary::Create(tokens, "f"), {{"a", "b"}}, options, "f");
  ASSERT_TRUE(bpe.ok()) << bpe.status().message();
  BpeScratch scratch;
  std::vector<int32_t> ids;
  (*bpe)->Encode("xéyabbxxé▁ba", scratch, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 3, 2, 0, 2, 1}));
  std::vector<std::string> unknown;
  (*bpe)->AppendUnknown("xéyabbxxé▁ba", unknown);
  EXPECT_EQ(unknown, (std::vector<std::string>{"xéy", "xxé▁"}));
}

TEST(Bpe, CharactersAroundADroppedOneMerge) {
  const std::vector<std::pair<std::string_view, int64_t>> tokens = {{"▁", 0}, {"a", 1}, {"b", 2}, {"ab", 3}, {"▁▁", 4}};
  auto bpe = Bpe::Create(*Vocabulary::Create(tokens, "f"), {{"a", "b"}, {"▁", "▁"}}, {}, "f");
  ASSERT_TRUE(bpe.ok()) << bpe.status().message();
  BpeScratch scratch;
  std::vector<int32_t> ids;
  (*bpe)->Encode("axb▁é▁", scratch, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{3, 4}));
}

TEST(Bpe, AffixesAreSpelledAroundCharacters) {
  const std::vector<std::pair<std::string_view, int64_t>> tokens = {{"a", 0},  {"##b", 1}, {"##b!", 2},
                                                                    {"a!", 3}, {"ab", 4},  {"##a!", 5}};
  BpeOptions options;
  options.continuing_subword_prefix = "##";
  options.end_of_word_suffix = "!";
  auto bpe = Bpe::Create(*Vocabulary::Create(tokens, "f"), {{"a", "##b"}}, options, "f");
  ASSERT_TRUE(bpe.ok()) << bpe.status().message();
  BpeScratch scratch;
  const auto encode = [&](std::string_view word) {
    std::vector<int32_t> ids;
    (*bpe)->Encode(word, scratch, ids);
    return ids;
  };
  EXPECT_EQ(encode("a"), (std::vector<int32_t>{3}));
  EXPECT_EQ(encode("ab"), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(encode("aba"), (std::vector<int32_t>{4, 5}));
}

}  // namespace
}  // namespace temper::bpe_test
