#include "format/base64.h"

#include <gtest/gtest.h>

namespace temper::base64_test {
namespace {

// The examples of RFC 4648, section 10.
TEST(Base64, DecodesTheExamplesOfItsStandardPaddedOrNot) {
  const std::pair<const char*, const char*> examples[] = {
      {"", ""},           {"Zg==", "f"},           {"Zm8=", "fo"},
      {"Zm9v", "foo"},    {"Zm9vYg==", "foob"},    {"Zm9vYmE=", "fooba"},
      {"Zm9vYg", "foob"}, {"//79", "\xFF\xFE\xFD"}};
  for (const auto& [text, bytes] : examples) EXPECT_EQ(DecodeBase64(text), bytes) << text;
}

TEST(Base64, RefusesOtherCharactersAndTextsThatEndWithinAByte) {
  for (const char* text : {"Z", "Zm9vY", "Zg=", "Zg===", "=", "Zm 9v", "Zm9v\n", "Zm-_", "Z=9v"}) {
    EXPECT_EQ(DecodeBase64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace temper::base64_test
