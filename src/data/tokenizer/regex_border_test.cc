#include "data/tokenizer/regex_border.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "data/tokenizer/regex.h"

namespace temper::regex_border_test {
namespace {

constexpr char kGpt2[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kO200k[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr auto kUncertain = RegexBorder::kUncertain, kOutside = RegexBorder::kOutside,
               kMatchEnds = RegexBorder::kMatchEnds;

TEST(RegexBorders, WordsOfPublishedExpressionsEndBeforeASpace) {
  for (const char* pattern : {kGpt2, kLlama3, kO200k}) {
    EXPECT_EQ(BorderOf(pattern, "d", " "), kMatchEnds) << pattern;
    EXPECT_EQ(BorderOf(pattern, "\xD0\xB9", " "), kMatchEnds) << pattern;       // й
    EXPECT_EQ(BorderOf(pattern, "\xE4\xBB\x96", "\n"), kMatchEnds) << pattern;  // 他
    EXPECT_EQ(BorderOf(pattern, "d", "e"), kUncertain) << pattern;
    EXPECT_EQ(BorderOf(pattern, " ", "d"), kUncertain) << pattern;
    EXPECT_EQ(BorderOf(pattern, "\n", "d"), kUncertain) << "white space before a word depends on the word";
  }
  EXPECT_EQ(BorderOf(kGpt2, ".", "\n"), kMatchEnds);
  EXPECT_EQ(BorderOf(kLlama3, ".", "\n"), kUncertain) << "line ends belong to the signs before them";
  EXPECT_EQ(BorderOf(kLlama3, "d", "'"), kMatchEnds);
  EXPECT_EQ(BorderOf(kO200k, "d", "'"), kUncertain) << "contractions belong to the word";
}

TEST(RegexBorders, CharactersThatNoMatchTakesAreOutside) {
  EXPECT_EQ(BorderOf(R"(\p{N}{1,3})", "d", " "), kOutside);
  EXPECT_EQ(BorderOf(R"([\r\n])", "d", " "), kOutside);
  EXPECT_EQ(BorderOf(R"([\r\n])", "\n", "d"), kMatchEnds);
  EXPECT_EQ(BorderOf(R"(\p{N}{1,3})", "d", "1"), kUncertain) << "a match may begin";
  EXPECT_EQ(BorderOf("ab", "b", " "), kUncertain) << "ends with a b only behind an a";
}

TEST(RegexBorders, WhatLooksBackOrCannotBeReadIsUncertain) {
  for (const char* pattern : {R"(\bd)", "^d", "d$", "(?<=x)d|d", R"((x)\1|d)", "d?", R"(\Gd)", "(?x) d", R"(\R|d)",
                              "(?(?=d)d|e)", R"(d\K|d)"}) {
    EXPECT_EQ(BorderOf(pattern, "d", " "), kUncertain) << pattern;
  }
  EXPECT_EQ(BorderOf("d(?= )|d", "d", " "), kUncertain) << "the space decides";
  EXPECT_EQ(BorderOf("d(?! )|d", "d", " "), kUncertain);
  EXPECT_EQ(BorderOf(R"(d(?!\S)|d)", "d", " "), kMatchEnds);
  EXPECT_EQ(BorderOf("(?i)D|x", "d", " "), kMatchEnds) << "flags hold for what follows";
  EXPECT_EQ(BorderOf("(?:a|(?i)D)|x", "d", " "), kMatchEnds);
  EXPECT_EQ(BorderOf("(?i:D)x|D", "d", " "), kOutside) << "and for their group only";
  EXPECT_EQ(BorderOf("d{1,3}", "d", "d"), kUncertain);
  EXPECT_EQ(BorderOf("d", "d", "d"), kMatchEnds);
  EXPECT_EQ(BorderOf("(?>d+) ?", "d", " "), kUncertain);
}

struct Found {
  std::vector<Span> spans;
  bool ok = false;
};

Found Search(const Regex& regex, std::string_view text, size_t offset) {
  Found found;
  RegexScratch scratch;
  found.ok = regex
                 .Cover(text, scratch,
                        [&](const Span& span) {
                          found.spans.push_back({span.begin + offset, span.end + offset, span.is_match});
                          return OkStatus();
                        })
                 .ok();
  return found;
}

std::string Shown(const std::vector<Span>& spans) {
  std::string out;
  for (const Span& span : spans) {
    out += std::to_string(span.begin) + (span.is_match ? "=" : "-") + std::to_string(span.end) + ' ';
  }
  return out;
}

// Random expressions and texts over few characters, so that every border occurs.
TEST(RegexBorders, ASearchOfBothPartsFindsWhatThatOfTheWholeFinds) {
  std::mt19937 random(7);
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<std::string> atoms = {"a",        "b",         R"(\s)", R"(\S)",  "[ab]",          "[^a]",
                                          R"(\p{L})", R"(\n)",     "(a|b)", "(?:ab)", R"([^\s\p{L}])", ".",
                                          "(?i:A)",   R"((?!\S))", "(?=a)", "(?!b)"};
  const std::vector<std::string> counts = {"", "", "", "+", "*", "?", "+?", "++", "{1,2}", "*+"};
  const std::string characters = "aabb  \n.A";
  int certain = 0, ends = 0;
  std::vector<std::string> patterns = {kGpt2, kLlama3, kO200k};
  while (patterns.size() < 400) {
    std::string pattern;
    for (int alternatives = 1 + draw(3); alternatives > 0; --alternatives) {
      for (int parts = 1 + draw(3); parts > 0; --parts) {
        const std::string atom = atoms[static_cast<size_t>(draw(static_cast<int>(atoms.size())))];
        const bool assertion = atom.starts_with("(?=") || atom.starts_with("(?!");
        pattern += atom + (assertion ? "" : counts[static_cast<size_t>(draw(static_cast<int>(counts.size())))]);
      }
      if (alternatives > 1) pattern += '|';
    }
    patterns.push_back(pattern);
  }
  for (const std::string& pattern : patterns) {
    const auto regex = Regex::Compile(pattern, "test");
    ASSERT_TRUE(regex.ok()) << regex.status().message();
    for (const char* pair : {"a ", "ab", "b ", "b\n", ".a", "a.", "A ", "aa"}) {
      const std::string left(1, pair[0]), right(1, pair[1]);
      const RegexBorder border = BorderOf(pattern, left, right);
      if (border == kUncertain) continue;
      ++certain;
      ends += border == kMatchEnds;
      for (int n = 0; n < 60; ++n) {
        std::string before, behind;
        for (int i = draw(8); i > 0; --i) before += characters[static_cast<size_t>(draw(9))];
        for (int i = draw(8); i > 0; --i) behind += characters[static_cast<size_t>(draw(9))];
        before += left;
        behind.insert(0, right);
        Found parts = Search(*regex, before, 0);
        const Found second = Search(*regex, behind, before.size()), whole = Search(*regex, before + behind, 0);
        ASSERT_TRUE(parts.ok && second.ok && whole.ok);
        if (border == kOutside) {
          ASSERT_FALSE(parts.spans.back().is_match || second.spans.front().is_match) << pattern;
          parts.spans.back().end = second.spans.front().end;
          parts.spans.insert(parts.spans.end(), second.spans.begin() + 1, second.spans.end());
        } else {
          ASSERT_TRUE(parts.spans.back().is_match) << pattern;
          parts.spans.insert(parts.spans.end(), second.spans.begin(), second.spans.end());
        }
        ASSERT_EQ(Shown(parts.spans), Shown(whole.spans)) << pattern << " on '" << before << "' | '" << behind << "'";
      }
    }
  }
  EXPECT_GT(certain, 300);
  EXPECT_GT(ends, 100);
}

}  // namespace
}  // namespace temper::regex_border_test
