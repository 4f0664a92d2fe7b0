#include "data/document_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "base/scratch_folder.h"

namespace temper::document_reader_test {
namespace {

class Documents : public testing::Test {
 protected:
  // The document, read `size` bytes at a time.
  Result<std::string> Read(const std::string& bytes, size_t size) {
    const std::string path = scratch_ / "d.txt";
    TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), path, bytes));
    TEMPER_ASSIGN_OR_RETURN(const auto reader, DocumentReader::Open(PosixEnv(), path));
    std::string all;
    for (bool more = true; more;) {
      std::string text;
      TEMPER_ASSIGN_OR_RETURN(more, reader->Read(size, text));
      EXPECT_TRUE(!more || text.size() >= size);
      all += text;
    }
    return all;
  }

  const ScratchFolder scratch_;
};

TEST_F(Documents, AreReadWithoutByteOrderMarkAndCarriageReturnsBeforeLineEnds) {
  EXPECT_EQ(*Read("\xEF\xBB\xBFone\r\ntwo\rthree\r\r\n\r", 4), "one\ntwo\rthree\r\n\r");
  EXPECT_EQ(*Read("\xC3\xA9\xEF\xBB\xBF", 1), "\xC3\xA9\xEF\xBB\xBF");
}

// Longer than the reader's buffer, so that characters and line ends lie across its end.
TEST_F(Documents, AreTheSameHoweverTheyAreRead) {
  std::mt19937 random(3);
  std::string bytes = "x", text = "x";
  while (bytes.size() < 1200 * 1000) {
    static constexpr const char* kParts[] = {"a", "\r\n", "\xE4\xBB\x96", "\xF0\x9F\x98\x80", "\r", "\n"};
    const std::string part = kParts[random() % std::size(kParts)];
    if (part == "\n" && bytes.back() == '\r') continue;
    bytes += part;
    text += part == "\r\n" ? "\n" : part;
  }
  bytes += "end", text += "end";
  for (const size_t size : {size_t{1000}, size_t{256} << 10, size_t{1} << 30}) EXPECT_TRUE(*Read(bytes, size) == text);
}

TEST_F(Documents, ThatAreNotUtf8OrBlankAreErrorsWithTheirPlace) {
  const auto place = [&](const std::string& bytes) {
    const auto text = Read(bytes, 1 << 20);
    return text.ok() ? "none" : text.status().message();
  };
  EXPECT_NE(place("one\ntwo \xE9t\xE9\n").find("d.txt line 2 (byte 8): not UTF-8"), std::string::npos);
  EXPECT_NE(place("one\n\xE4\xBB").find("d.txt line 2 (byte 4): not UTF-8"), std::string::npos) << "cut off";
  std::string far(300 << 10, '\n');
  far += "\xEF\xBB\xBFx\xFF";
  EXPECT_NE(place(far).find("line 307201 (byte 307204): not UTF-8"), std::string::npos);
  for (const char* blank : {"", "\xEF\xBB\xBF", " \r\n\t\n"}) {
    EXPECT_NE(place(blank).find("d.txt is empty"), std::string::npos);
  }
}

}  // namespace
}  // namespace temper::document_reader_test
