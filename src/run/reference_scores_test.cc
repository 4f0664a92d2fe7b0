#include "run/reference_scores.h"

#include <gtest/gtest.h>

namespace temper::reference_scores_test {
namespace {

TEST(ReferenceScores, ComeBackAsTheyWere) {
  for (const bool evaluates : {false, true}) {
    ReferenceScores scores{.train = {.fingerprint = "xxh3:1", .numbers = {-1.5f, -2.25f, 0}}};
    if (evaluates) scores.evaluation = {{.fingerprint = "xxh3:2", .numbers = {-3}}};
    const auto back = ParseScores(PrintScores(scores), "f");
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back->train.fingerprint, "xxh3:1");
    EXPECT_EQ(back->train.numbers, scores.train.numbers);
    ASSERT_EQ(back->evaluation.has_value(), evaluates);
    if (evaluates) {
      EXPECT_EQ(back->evaluation->numbers, std::vector<float>{-3});
    }
  }
}

TEST(ReferenceScores, AnyDamageIsFound) {
  const std::string bytes = PrintScores({.train = {.fingerprint = "xxh3:1", .numbers = {-1.5f, -2.25f}}});
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string flipped = bytes;
    flipped[i] ^= 1;
    EXPECT_EQ(ParseScores(flipped, "f").status().code(), StatusCode::kCorrupt) << i;
    EXPECT_EQ(ParseScores(bytes.substr(0, i), "f").status().code(), StatusCode::kCorrupt) << i;
  }
  EXPECT_NE(ParseScores("", "f").status().message().find("f is damaged"), std::string::npos);
}

}  // namespace
}  // namespace temper::reference_scores_test
