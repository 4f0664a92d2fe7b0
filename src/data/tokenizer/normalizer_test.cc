#include "data/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "format/json.h"

namespace temper::normalizer_test {
namespace {

// A normal form of the text before a border is what it would be without the text behind. But what comes before the left
// character may join with its form: the halfwidth voiced mark becomes a mark, a compatibility jamo a vowel of Hangul.
TEST(Normalizers, FollowNoCharacterWhoseFormJoinsTheOneBefore) {
  const auto follows = [](const char* form, const std::string& left) {
    const auto normalizer = Normalizer::FromJson(Json{{"type", form}}, "a test");
    EXPECT_TRUE(normalizer.ok()) << normalizer.status().message();
    TextBorder border = TextBorder::Of(utf8::At(left, 0), 'a');
    return (*normalizer)->Follow(border);
  };
  const std::string voiced = "\xEF\xBE\x9E", vowel = "\xE3\x85\x8F";  // U+FF9E, U+314F
  for (const std::string& left : {voiced, vowel}) {
    EXPECT_FALSE(follows("NFKC", left));
    EXPECT_FALSE(follows("NFKD", left));
    EXPECT_TRUE(follows("NFC", left));
  }
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD"}) EXPECT_TRUE(follows(form, "b")) << form;
}

}  // namespace
}  // namespace temper::normalizer_test
