#include "base/utf8.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace temper::utf8_test {
namespace {

TEST(Utf8, EveryCodePointComesBackAndSurrogatesDoNot) {
  for (char32_t c = 0; c <= 0x110000; ++c) {
    std::string behind_x = "x";
    utf8::Append(behind_x, c);
    const std::string_view text = std::string_view(behind_x).substr(1);
    const bool is_character = c < 0x110000 && (c < 0xD800 || c > 0xDFFF);
    bool right = utf8::IsValid(text) == is_character;
    if (is_character) {
      right &= utf8::At(text, 0) == c && utf8::Length(text[0]) == text.size() &&
               utf8::LengthAt(text, 0) == text.size() && utf8::LastStart(behind_x) == 1;
      for (size_t cut = 1; cut < text.size(); ++cut) right &= utf8::LengthAt(text.substr(0, cut), 0) == 0;
    }
    if (!right) FAIL() << "code point " << static_cast<uint32_t>(c);  // an assertion for each takes seconds
  }
}

// The cases of the Unicode standard, table 3-8, and of the sections about overlong forms.
TEST(Utf8, EachMaximalIllFormedPartBecomesOneReplacement) {
  const struct {
    std::string_view text, valid;
  } cases[] = {
      {"a\xF1\x80\x80\xE1\x80\xC2"
       "b\x80"
       "c\x80\xBF"
       "d",
       "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xE0\x80\xAF", "\uFFFD\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"12345678\xE2\x82", "12345678\uFFFD"},
  };
  for (const auto& c : cases) {
    std::string storage;
    EXPECT_EQ(utf8::MakeValid(c.text, storage), c.valid);
    EXPECT_FALSE(utf8::IsValid(c.text));
  }
}

TEST(Utf8, WhateverTheBytesTheResultIsValidAndValidTextIsNotCopied) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::string text;
    for (uint64_t k = 0; k < 24; ++k) text += static_cast<char>(HashName(std::to_string(seed * 100 + k)));
    std::string storage, again;
    const std::string_view valid = utf8::MakeValid(text, storage);
    EXPECT_TRUE(utf8::IsValid(valid));
    EXPECT_TRUE(valid.starts_with(text.substr(0, utf8::ValidPrefix(text))));
    EXPECT_EQ(utf8::MakeValid(valid, again).data(), valid.data());
  }
}

TEST(Utf8, HarmlessTextDrivesNoTerminal) {
  EXPECT_EQ(utf8::Harmless("Caf\u00e9\n\t\u28ff"), "Caf\u00e9\n\t\u28ff");
  EXPECT_EQ(utf8::Harmless("a\x1b[31mb\r\x7f"), "a\\x1b[31mb\\x0d\\x7f");
  EXPECT_EQ(utf8::Harmless("\xc2\x9b"
                           "2J"),
            "\\x9b2J");  // CSI as a character of C1
  EXPECT_EQ(utf8::Harmless("\x9b"
                           "2J\xe2\x82"),
            "\\x9b2J\\xe2\\x82");  // and as a byte, which is none of UTF-8
  EXPECT_EQ(utf8::Harmless(std::string_view("\0", 1)), "\\x00");
}

}  // namespace
}  // namespace temper::utf8_test
