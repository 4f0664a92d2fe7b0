#include "format/checksum.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace temper::checksum_test {
namespace {

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Checksum, IsXXH3AsXxhsumPrintsIt) {
  EXPECT_EQ(Checksum().Hex(), "2d06800538d394c2");  // printf '' | xxhsum -H3
  EXPECT_EQ(ChecksumHex({}), "2d06800538d394c2");
  EXPECT_EQ(ChecksumHex(AsBytes("temper")), "7b0ef302f27d48b7");
  EXPECT_EQ(ChecksumHex(AsBytes(std::string(1000, 'x'))), "c0a4877b962cba82");
}

TEST(Checksum, DoesNotDependOnHowTheBytesCome) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 7 + i / 256);
  for (size_t piece : {1u, 3u, 64u, 255u, 256u, 257u, 4999u}) {
    Checksum sum;
    for (size_t at = 0; at < text.size(); at += piece) sum.Update(AsBytes(std::string_view(text).substr(at, piece)));
    EXPECT_EQ(sum.Hex(), ChecksumHex(AsBytes(text))) << piece;
    EXPECT_EQ(sum.Hex(), ChecksumHex(AsBytes(text))) << "Hex changed the state";
  }
}

TEST(Checksum, SeesEveryFlippedBit) {
  std::string text(300, 'a');
  const std::string before = ChecksumHex(AsBytes(text));
  for (size_t i = 0; i < text.size() * 8; ++i) {
    text[i / 8] = static_cast<char>(text[i / 8] ^ (1 << (i % 8)));
    EXPECT_NE(ChecksumHex(AsBytes(text)), before);
    text[i / 8] = static_cast<char>(text[i / 8] ^ (1 << (i % 8)));
  }
}

}  // namespace
}  // namespace temper::checksum_test
