#include "data/tokenizer/regex.h"

#include <gtest/gtest.h>

namespace temper::regex_test {
namespace {

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  auto regex = Regex::Compile(pattern, "f.json");
  EXPECT_TRUE(regex.ok()) << regex.status().message();
  RegexScratch scratch;
  std::vector<std::string> found;
  const Status status = regex->Cover(text, scratch, [&](const Span& span) {
    if (span.is_match) found.push_back(text.substr(span.begin, span.end - span.begin));
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return found;
}

using Texts = std::vector<std::string>;

constexpr auto kIgnore = [](const Span&) { return OkStatus(); };

TEST(Regex, ReadsPatternsAsOnigurumaDoes) {
  EXPECT_EQ(Matches(R"(\s)", "a\u00A0b\u180Ec\u0085d\u3000"), (Texts{"\u00A0", "\u0085", "\u3000"}));  // not U+180E
  EXPECT_EQ(Matches(R"(\w+)", "naïve\u0301 x_1 ④ ⓐ x²"), (Texts{"naïve\u0301", "x_1", "ⓐ", "x²"}));
  EXPECT_EQ(Matches(R"([[:punct:]]+)", "a+b, c¢"), (Texts{"+", ",", "¢"}));
  EXPECT_EQ(Matches(R"(\h+|[\h-]+)", "xyz beef-01"), (Texts{"beef", "-01"}));
  EXPECT_EQ(Matches(R"(^\p{Han}$)", "猫\n狗\nab"), (Texts{"猫", "狗"}));  // ^ and $ at every line
  EXPECT_EQ(Matches(R"(\p{Katakana})", "カー"), (Texts{"カ"}));           // the script, not its extensions
  EXPECT_EQ(Matches(R"((?m:a.b))", "a\nb"), (Texts{"a\nb"}));             // Ruby's m: the dot matches all
  EXPECT_EQ(Matches(R"([]x]\u0061)", "]a xa b"), (Texts{"]a", "xa"}));
  EXPECT_EQ(Matches(R"((?i:'s))", "'S 'ſ"), (Texts{"'S", "'ſ"}));
}

TEST(Regex, SkipsTheEmptyMatchAfterAMatch) {
  EXPECT_EQ(Matches("x*", "axxb"), (Texts{"", "xx", ""}));
  EXPECT_EQ(Matches("", "猫b"), (Texts{"", "", ""}));
}

TEST(Regex, EscapesEveryLiteral) {
  std::string all;
  for (char c = 1; c > 0; ++c) all += c;
  EXPECT_EQ(Matches(Regex::Escape(all), "x" + all + "x"), Texts{all});
}

TEST(Regex, RefusesPatternsWithAnotherMeaningInPcre2) {
  for (const char* pattern : {"[a-z&&[^b]]", "[a[bc]]", "a{1,2}+", R"(\C)", R"([\W])", "[[:print:]]", "[[:^alpha:]]",
                              "(", "[", R"(\)", R"(\u12)", R"(\p)"}) {
    const auto regex = Regex::Compile(pattern, "f.json");
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_NE(regex.status().message().find("f.json"), std::string::npos);
  }
}

// Each takes exponential or quadratic time also in Oniguruma.
TEST(Regex, CatastrophicBacktrackingIsAnError) {
  for (const char* pattern : {"(?:a+)+[bd]", "(?:a|aa)+[bd]", "(?:a?){60}a{60}[bd]"}) {
    auto regex = Regex::Compile(pattern, "f.json");
    ASSERT_TRUE(regex.ok());
    RegexScratch scratch;
    const Status status = regex->Cover(std::string(5000, 'a'), scratch, kIgnore);
    EXPECT_NE(status.message().find("f.json"), std::string::npos) << pattern;
    EXPECT_TRUE(regex->Cover("aab", scratch, kIgnore).ok());  // the scratch still works
  }
}

// A search that fails at every start is quadratic in any engine; the limits must hold here, too.
TEST(Regex, EndsOnLongTexts) {
  for (const char* pattern : {R"(\s+$x|\s+y)", "a*[bd]", R"(\s*[\r\n]+|\s+(?!\S)|\s+)", R"(\p{L}+)"}) {
    auto regex = Regex::Compile(pattern, "f.json");
    ASSERT_TRUE(regex.ok());
    RegexScratch scratch;
    for (const char c : {'a', ' '}) (void)regex->Cover(std::string(1'000'000, c), scratch, kIgnore).ok();
  }
}

}  // namespace
}  // namespace temper::regex_test
