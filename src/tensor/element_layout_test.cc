#include "tensor/element_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

namespace temper::element_layout_test {
namespace {

struct Size {
  int64_t rows, columns;
};
constexpr Size kSizes[] = {{64, 96}, {33, 7}, {31, 65}, {1, 1}, {2, 130}, {0, 4}};

// No element is 0.
std::vector<uint16_t> Numbers(const Size& size) {
  std::vector<uint16_t> x(static_cast<size_t>(size.rows * size.columns));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(1 + i % 65535);
  return x;
}

TEST(PackedPanels, HoldEachElementOnceAndZerosBesideThem) {
  for (const ElementLayout layout : {ElementLayout::kColumnPairs, ElementLayout::kRowPairs}) {
    for (const Size& size : kSizes) {
      SCOPED_TRACE(testing::Message() << ToString(layout) << " " << size.rows << " x " << size.columns);
      const PackedPanels panels(layout, size.rows, size.columns);
      const std::vector<uint16_t> x = Numbers(size);
      for (const int64_t at_once : {2, 6, 32, 1000}) {
        std::vector<std::byte> packed(static_cast<size_t>(panels.bytes().v), std::byte{0xAB});
        for (int64_t row = 0; row < size.rows; row += at_once) {
          panels.PackRows(row, std::min(at_once, size.rows - row), x.data() + row * size.columns, packed.data());
        }
        std::map<int64_t, uint16_t> elements;  // by offset
        for (int64_t r = 0; r < size.rows; ++r) {
          for (int64_t c = 0; c < size.columns; ++c) {
            ASSERT_TRUE(elements.emplace(panels.Offset(r, c), x[static_cast<size_t>(r * size.columns + c)]).second);
          }
        }
        constexpr int64_t kGap = 64;
        for (int64_t at = 0; at < panels.bytes().v; at += 2) {
          if (at % panels.panel_bytes() >= panels.panel_bytes() - kGap) continue;
          uint16_t number = 0;
          std::memcpy(&number, packed.data() + at, sizeof(number));
          const auto element = elements.find(at);
          ASSERT_EQ(number, element == elements.end() ? 0 : element->second) << at;
        }
      }
    }
  }
}

// As the instructions take them: 32 lines side by side, a pair of each.
TEST(PackedPanels, PutNeighboursInDepthIntoOneWord) {
  const PackedPanels columns(ElementLayout::kColumnPairs, 64, 64), rows(ElementLayout::kRowPairs, 64, 64);
  EXPECT_EQ(columns.Offset(0, 1), 2);
  EXPECT_EQ(columns.Offset(1, 0), 4);
  EXPECT_EQ(columns.Offset(0, 2), 32 * 4);
  EXPECT_EQ(columns.Offset(32, 0), columns.panel_bytes());
  EXPECT_EQ(columns.panel_bytes(), 32 * 64 * 2 + 64);
  EXPECT_EQ(rows.Offset(1, 0), 2);
  EXPECT_EQ(rows.Offset(0, 1), 4);
  EXPECT_EQ(rows.Offset(2, 0), 32 * 4);
  EXPECT_EQ(rows.Offset(0, 32), rows.panel_bytes());
}

TEST(ElementLayout, IsReadAsItIsWritten) {
  for (const ElementLayout layout : {ElementLayout::kRowMajor, ElementLayout::kColumnPairs, ElementLayout::kRowPairs}) {
    EXPECT_EQ(ParseElementLayout(ToString(layout)), layout);
  }
  EXPECT_EQ(ParseElementLayout("columns"), std::nullopt);
}

}  // namespace
}  // namespace temper::element_layout_test
