// Arrow files that are wrong.
#include "format/arrow/arrow_reader.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/project_folder_for_test.h"
#include "format/memory_env_for_test.h"

namespace temper::arrow_reader_test {
namespace {

using Strings = std::vector<std::string>;

// The rows, and last the error, if there is one.
Strings Rows(const std::string& bytes) {
  MemoryEnv env;
  env.files["f"] = bytes;
  auto reader = ArrowReader::Open(*env.OpenForRead("f"), {});
  if (!reader.ok()) return {reader.status().message()};
  Strings rows;
  JsonRow row;
  for (;;) {
    const auto more = (*reader)->Next(row);
    if (!more.ok()) rows.push_back(more.status().message());
    if (!more.ok() || !*more) return rows;
    rows.push_back(row.json);
  }
}

std::string Golden(const std::string& name) {
  return *ReadTextFile(PosixEnv(), std::string(kProjectFolder) + "/tests/format/columnar/" + name + ".arrow");
}

TEST(ArrowReader, AFileThatIsCutOffIsRefused) {
  const std::string whole = Golden("file");
  for (size_t size = 0; size < whole.size(); ++size) {
    const Strings rows = Rows(whole.substr(0, size));
    ASSERT_EQ(rows.size(), 1u) << size;
    ASSERT_TRUE(rows[0].starts_with("f: ")) << rows[0];
  }
  EXPECT_NE(Rows(whole.substr(0, whole.size() - 1))[0].find("ends in ARROW1"), std::string::npos);
}

// Where a stream ends between two messages nothing tells what is missing.
TEST(ArrowReader, AStreamThatIsCutOffEndsInAnErrorOrBetweenBatches) {
  const std::string whole = Golden("stream");
  const Strings all = Rows(whole);
  ASSERT_EQ(all.size(), 7u) << all.back();
  int silent = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    const Strings rows = Rows(whole.substr(0, size));
    if (!rows.empty() && rows.back().starts_with("f: ")) continue;
    ++silent;
    ASSERT_EQ(rows, Strings(all.begin(), all.begin() + static_cast<int64_t>(rows.size()))) << size;
  }
  EXPECT_EQ(silent, 4);  // behind the schema and each of three batches
}

TEST(ArrowReader, NoDamagedByteIsAFault) {
  int errors = 0, files = 0;
  for (const char* name : {"file", "stream"}) {
    const std::string whole = Golden(name);
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      const Strings rows = Rows(damaged);
      ++files;
      errors += !rows.empty() && rows.back().starts_with("f: ");
    }
  }
  EXPECT_GT(errors, files / 10);  // the rest is in values, padding and what nothing reads
}

TEST(ArrowReader, AMessageOfAnImpossibleSizeIsNamed) {
  std::string stream = Golden("stream");
  const int32_t huge = 0x7ffffff0;
  std::memcpy(stream.data() + 4, &huge, sizeof huge);
  EXPECT_NE(Rows(stream)[0].find("f: no message begins at byte 0"), std::string::npos) << Rows(stream)[0];
}

}  // namespace
}  // namespace temper::arrow_reader_test
