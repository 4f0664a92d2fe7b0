#include "tensor/element_layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace temper {
namespace {

constexpr int64_t kWord = 4, kPairBytes = kPanelLines * kWord, kGap = 64;
constexpr std::string_view kLayoutNames[] = {"", "column_pairs", "row_pairs"};

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

std::string_view ToString(ElementLayout layout) {
  return kLayoutNames[static_cast<size_t>(layout)];
}

std::optional<ElementLayout> ParseElementLayout(std::string_view text) {
  const auto* const name = std::find(std::begin(kLayoutNames), std::end(kLayoutNames), text);
  if (name == std::end(kLayoutNames)) return std::nullopt;
  return static_cast<ElementLayout>(name - std::begin(kLayoutNames));
}

PackedPanels::PackedPanels(ElementLayout layout, int64_t rows, int64_t columns)
    : rows_are_lines_(layout == ElementLayout::kColumnPairs), rows_(rows), columns_(columns) {
  TEMPER_CHECK(layout != ElementLayout::kRowMajor) << "a row-major matrix has no panels";
  const int64_t lines = rows_are_lines_ ? rows : columns, depth = rows_are_lines_ ? columns : rows;
  count_ = CeilDiv(lines, kPanelLines);
  pairs_ = CeilDiv(depth, kPanelStep) * (kPanelStep / 2);
  panel_bytes_ = pairs_ * kPairBytes + kGap;
}

int64_t PackedPanels::Offset(int64_t row, int64_t column) const {
  const int64_t line = rows_are_lines_ ? row : column, k = rows_are_lines_ ? column : row;
  return line / kPanelLines * panel_bytes_ + k / 2 * kPairBytes + line % kPanelLines * kWord + k % 2 * 2;
}

void PackedPanels::PackRows(int64_t first_row, int64_t rows, const uint16_t* source, std::byte* packed) const {
  TEMPER_CHECK(first_row % 2 == 0 && (rows % 2 == 0 || first_row + rows == rows_) && first_row + rows <= rows_)
      << "rows [" << first_row << ", " << first_row + rows << ") of " << rows_;
  if (rows_are_lines_) {
    PackLines(first_row, rows, source, packed);
  } else {
    PackDepth(first_row, rows, source, packed);
  }
}

// Pairs are the outer loop, because a pair of neighbouring rows lies in one cache line and those of a row do not.
// one.
void PackedPanels::PackLines(int64_t first_row, int64_t rows, const uint16_t* source, std::byte* packed) const {
  const int64_t end = first_row + rows, padded_end = end == rows_ ? count_ * kPanelLines : end;
  for (int64_t begin = first_row; begin < padded_end;) {
    const int64_t stop = std::min(padded_end, (begin / kPanelLines + 1) * kPanelLines);
    std::byte* const panel = packed + begin / kPanelLines * panel_bytes_;
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      const int64_t have = std::clamp<int64_t>(columns_ - 2 * pair, 0, 2) * 2;  // bytes
      for (int64_t row = begin; row < stop; ++row) {
        uint32_t word = 0;
        if (row < end) {
          const uint16_t* const from = source + (row - first_row) * columns_ + 2 * pair;
          if (have == kWord) {
            std::memcpy(&word, from, kWord);  // of a constant size: one load
          } else {
            std::memcpy(&word, from, static_cast<size_t>(have));
          }
        }
        std::memcpy(panel + pair * kPairBytes + row % kPanelLines * kWord, &word, kWord);
      }
    }
    begin = stop;
  }
}

void PackedPanels::PackDepth(int64_t first_row, int64_t rows, const uint16_t* source, std::byte* packed) const {
  const int64_t end = first_row + rows, padded_end = end == rows_ ? 2 * pairs_ : end;
  for (int64_t row = first_row; row < padded_end; row += 2) {
    const uint16_t* const low = row < end ? source + (row - first_row) * columns_ : nullptr;
    const uint16_t* const high = row + 1 < end ? source + (row + 1 - first_row) * columns_ : nullptr;
    for (int64_t panel = 0; panel < count_; ++panel) {
      const int64_t first = panel * kPanelLines, lines = std::min(kPanelLines, columns_ - first);
      uint16_t words[2 * kPanelLines] = {};
      if (high != nullptr) {
        for (int64_t i = 0; i < lines; ++i) {
          words[2 * i] = low[first + i];
          words[2 * i + 1] = high[first + i];
        }
      } else if (low != nullptr) {
        for (int64_t i = 0; i < lines; ++i) words[2 * i] = low[first + i];
      }
      std::memcpy(packed + panel * panel_bytes_ + row / 2 * kPairBytes, words, sizeof(words));
    }
  }
}

}  // namespace temper
