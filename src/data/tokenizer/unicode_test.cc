#include "data/tokenizer/unicode.h"

#include <gtest/gtest.h>

namespace temper::unicode::unicode_test {
namespace {

TEST(Unicode, NormalizationForms) {
  EXPECT_EQ(Normalize("A\u030A\u00C5\u212B", Form::kNfc), "\u00C5\u00C5\u00C5");
  EXPECT_EQ(Normalize("\u00C5", Form::kNfd), "A\u030A");
  EXPECT_EQ(Normalize("ﬁ½", Form::kNfkc), "fi1\u20442");
  EXPECT_EQ(Normalize("ﬁ", Form::kNfc), "ﬁ");
  EXPECT_EQ(Normalize("q\u0307\u0323", Form::kNfd), "q\u0323\u0307");  // marks are sorted by class
  EXPECT_EQ(Normalize("\u1112\u1161\u11AB", Form::kNfc), "한");
  EXPECT_EQ(Normalize("한", Form::kNfd), "\u1112\u1161\u11AB");
}

// tokenizers' normalizers know Unicode 9: later composites stay unchanged, later marks do not count as marks.
TEST(Unicode, CharactersUnknownToNormalizersStayUnchanged) {
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
}  // namespace temper::unicode::unicode_test
