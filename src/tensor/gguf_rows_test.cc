// Blocks of GGUF files as rows. Their numbers are held to the gguf package where files are read
// (format/gguf/block_tensor_test.cc).
#include <gtest/gtest.h>

#include <set>

#include "tensor/format_rule.h"
#include "tensor/quantise_for_test.h"

namespace temper::gguf_rows_test {
namespace {

TEST(GgufRows, WholeBlocksTakeTheBytesOfTheFile) {
  const auto bytes = [](const char* name, int64_t columns) { return ParseElementFormat(name)->RowBytes(columns); };
  EXPECT_EQ(bytes("q8_0", 2048), 2048 / 32 * 34);
  EXPECT_EQ(bytes("q4_k", 2048), 2048 / 256 * 144);
  EXPECT_EQ(bytes("q5_k", 2048), 2048 / 256 * 176);
  EXPECT_EQ(bytes("q6_k", 2048), 2048 / 256 * 210);
  EXPECT_EQ(bytes("q4_0", 4096), 4096 / 32 * 18);
  EXPECT_EQ(bytes("q6_k", 256), 224) << "rows are a multiple of 16 bytes";
  EXPECT_EQ(bytes("q4_k", 0), 0);
}

// Whatever part of the columns a row is of, its numbers are those of the whole.
TEST(GgufRows, PartsHaveTheNumbersOfTheWhole) {
  constexpr int64_t kColumns = 1024;
  const std::vector<float> x(kColumns, 0.25f);
  for (const FormatRule* rule : FormatRules()) {
    if (rule->stored == nullptr || rule->stored->method != "gguf") continue;
    const ElementFormat format = FormatWith(*rule);
    std::vector<bf16> want(kColumns), got(kColumns);
    const auto whole = Quantised(format, x, {1, kColumns}, {0, 0}, {1, kColumns});
    rule->numbers(whole.data(), kColumns, 0, kColumns, want.data());
    std::set<uint16_t> numbers;
    for (const bf16 n : want) numbers.insert(n.bits);
    EXPECT_GT(numbers.size(), 15u) << rule->name;
    for (const auto& [begin, columns] :
         {std::pair<int64_t, int64_t>{0, 512}, {256, 768}, {0, 5}, {7, 300}, {250, 20}, {1000, 24}, {1023, 1}}) {
      const auto row = Quantised(format, x, {1, kColumns}, {0, begin}, {1, columns});
      rule->numbers(row.data(), columns, 0, columns, got.data());
      for (int64_t i = 0; i < columns; ++i) {
        ASSERT_EQ(got[static_cast<size_t>(i)].bits, want[static_cast<size_t>(begin + i)].bits) << rule->name << i;
      }
      rule->numbers(row.data(), columns, columns / 2, columns, got.data());
      EXPECT_EQ(got[0].bits, want[static_cast<size_t>(begin + columns / 2)].bits) << rule->name;
    }
  }
}

}  // namespace
}  // namespace temper::gguf_rows_test
