#include "data/column_fillers.h"

#include <gtest/gtest.h>

#include <map>
#include <string_view>
#include <vector>

#include "data/token_memory.h"

namespace temper::column_fillers_test {
namespace {

TEST(ColumnFillers, FillPartsOfASampleAsTheWhole) {
  MemoryTokens made;
  made.Add(std::vector<int32_t>{11, 12, 13, 14, 15}, std::vector<uint8_t>{0, 1, 0, 1, 1},
           std::vector<TokenWeight>{1, kUnitWeight / 2, 1, kUnitWeight, 3 * kUnitWeight});
  const TokenStore store = made.Store();
  for (const ColumnSpec& column :
       {kTokenColumn, kTargetColumn, kWeightColumn, kPositionColumn, kDocumentStartColumn, kDocumentLengthColumn,
        kSampleStartColumn, kReferenceColumn, kLabelColumn, kMarginColumn, kPresentColumn}) {
    const ColumnFiller* const filler = FillerOf(column.name);
    ASSERT_NE(filler, nullptr) << column.name;
    EXPECT_EQ(filler->column.dtype, column.dtype) << column.name;
    const size_t bytes = filler->value_bytes();
    std::vector<std::byte> whole(5 * bytes), parts(5 * bytes);
    filler->fill({.sample = store.sample(0), .start = 7, .begin = 0, .end = 5, .first = 0, .count = 5}, whole.data());
    filler->fill({.sample = store.sample(0), .start = 7, .begin = 0, .end = 5, .first = 0, .count = 2}, parts.data());
    filler->fill({.sample = store.sample(0), .start = 7, .begin = 0, .end = 5, .first = 2, .count = 3},
                 parts.data() + 2 * bytes);
    EXPECT_EQ(parts, whole) << column.name;
    std::vector<int32_t> padding(2, 99);  // of all types four bytes
    filler->pad(3, 2, reinterpret_cast<std::byte*>(padding.data()));
    const std::map<std::string_view, std::vector<int32_t>> want = {
        {"token", {0, 0}},          {"target", {-1, -1}},        {"weight", {0, 0}},       {"position", {0, 0}},
        {"document_start", {3, 4}}, {"document_length", {1, 1}}, {"sample_start", {3, 4}}, {"reference", {0, 0}},
        {"label", {-1, -1}},        {"margin", {0, 0}},          {"present", {0, 0}}};
    EXPECT_EQ(padding, want.at(column.name)) << column.name;
  }
}

TEST(ColumnFillers, ALabelStandsAtTheLastToken) {
  MemoryTokens made({Section::kLabel});
  made.Add(std::vector<int32_t>{11, 12, 13}, std::vector<uint8_t>{0, 0, 0}, {}, {}, {.label = 4});
  const TokenStore store = made.Store();
  std::vector<int32_t> labels(3);
  FillerOf("label")->fill({.sample = store.sample(0),
                           .start = 7,
                           .begin = 0,
                           .end = 3,
                           .first = 0,
                           .count = 3,
                           .judged = true,
                           .values = store.values(0)},
                          reinterpret_cast<std::byte*>(labels.data()));
  EXPECT_EQ(labels, (std::vector<int32_t>{-1, -1, 4}));
}

TEST(ColumnFillers, KnowNoOtherInputs) {
  EXPECT_EQ(FillerOf("rng"), nullptr);
  EXPECT_EQ(FillerOf("scalars"), nullptr);
  EXPECT_EQ(FillerOf(""), nullptr);
}

}  // namespace
}  // namespace temper::column_fillers_test
