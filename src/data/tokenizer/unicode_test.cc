#include "data/tokenizer/unicode.h"

#include <gtest/gtest.h>

namespace temper::unicode {
namespace {

TEST(Unicode, ReplacesMaximalIllFormedParts) {
  // The example of the Unicode standard, table 3-8, and others of its section.
  std::string storage;
  EXPECT_EQ(MakeValid("a\xF1\x80\x80\xE1\x80\xC2z\x80q\x80\xBFw", storage), "a\uFFFD\uFFFD\uFFFDz\uFFFDq\uFFFD\uFFFDw");
  EXPECT_EQ(MakeValid("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82z", storage),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDz");
  EXPECT_EQ(MakeValid("\xED\xA0\x80\xF4\x91\x92\x93\xFFz", storage),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDz");
  const std::string_view fine = "plain é 猫 😀 and a longer run of ASCII behind";
  EXPECT_EQ(MakeValid(fine, storage).data(), fine.data());
}

TEST(Unicode, CodePointsSurviveTheirSpelling) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string text;
    Append(text, c);
    ASSERT_EQ(text.size(), Length(text[0]));
    ASSERT_EQ(At(text, 0), c);
    ASSERT_EQ(ValidPrefix(text), text.size());
    ASSERT_EQ(LastStart("x" + text), 1u);
  }
}

TEST(Unicode, NormalizationForms) {
  EXPECT_EQ(Normalize("A\u030A\u00C5\u212B", Form::kNfc), "\u00C5\u00C5\u00C5");
  EXPECT_EQ(Normalize("\u00C5", Form::kNfd), "A\u030A");
  EXPECT_EQ(Normalize("ﬁ½", Form::kNfkc), "fi1\u20442");
  EXPECT_EQ(Normalize("ﬁ", Form::kNfc), "ﬁ");
  EXPECT_EQ(Normalize("q\u0307\u0323", Form::kNfd), "q\u0323\u0307");  // marks come in the order of their classes
  EXPECT_EQ(Normalize("\u1112\u1161\u11AB", Form::kNfc), "한");
  EXPECT_EQ(Normalize("한", Form::kNfd), "\u1112\u1161\u11AB");
}

// tokenizers' normalizers know Unicode 9: later composites stay as they are spelled, later marks are none.
TEST(Unicode, WhatNormalizersDoNotKnowIsLeftAlone) {
  EXPECT_EQ(Normalize("\U00011935\U00011930", Form::kNfc), "\U00011935\U00011930");
  EXPECT_EQ(Normalize("\U00011938", Form::kNfd), "\U00011938");
  EXPECT_EQ(Normalize("\u32FF", Form::kNfkc), "\u32FF");
  EXPECT_EQ(Normalize("e\u1AC1\u0301", Form::kNfc), "e\u1AC1\u0301");
  EXPECT_EQ(Normalize("\u0301\u1AC1\u0323", Form::kNfc), "\u0301\u1AC1\u0323");
}

TEST(Unicode, LowercasesCharacterByCharacter) {
  EXPECT_EQ(Lowercase("ÄΣΊΣİǅ"), "äσίσi\u0307ǆ");
}

}  // namespace
}  // namespace temper::unicode
