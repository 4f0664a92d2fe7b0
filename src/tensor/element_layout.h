// ElementLayout: how the elements of a matrix lie in memory. Row-major, or packed into the panels that products of bf16
// read: then a product takes the matrix as it is, where it would else pack a block of it each time.
//
// A panel is 32 lines of the matrix, padded with zeros to 32, over all of the dim that a product sums over (here
// `depth`), padded with zeros to whole steps of 32. It is a sequence of pairs of depth: 32 words, one per line, each of
// two neighbours in depth. vdpbf16ps takes half a pair's words as one operand; the matrix units of AMX (tdpbf16ps) take
// half of 16 pairs. 64 bytes between panels keep the same step of several panels in different lines of a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.h"

namespace temper {

enum class ElementLayout : uint8_t {
  kRowMajor,
  kColumnPairs,  // lines are rows, pairs are of columns: a weight [out, in] for x w^T
  kRowPairs,     // lines are columns, pairs are of rows: a weight [out, in] for d_y w
};
std::string_view ToString(ElementLayout layout);                         // "", "column_pairs", "row_pairs"
std::optional<ElementLayout> ParseElementLayout(std::string_view text);  // the inverse

inline constexpr int64_t kPanelLines = 32, kPanelStep = 32;

// The panels of a bf16 matrix of rows x columns. REQUIRES: a packed layout.
class PackedPanels {
 public:
  PackedPanels(ElementLayout layout, int64_t rows, int64_t columns);

  int64_t panel_bytes() const { return panel_bytes_; }
  Bytes bytes() const { return {panel_bytes_ * count_}; }
  // The byte at which an element begins: the definition of the layout.
  int64_t Offset(int64_t row, int64_t column) const;
  // Packs `rows` rows from `first_row` on, which lie at `source` one after another. Writes the padding beside and
  // behind them, too. REQUIRES: first_row is even, and `rows`, unless they are the last.
  void PackRows(int64_t first_row, int64_t rows, const uint16_t* source, std::byte* packed) const;

 private:
  void PackLines(int64_t first_row, int64_t rows, const uint16_t* source, std::byte* packed) const;
  void PackDepth(int64_t first_row, int64_t rows, const uint16_t* source, std::byte* packed) const;

  const bool rows_are_lines_;
  const int64_t rows_, columns_;
  int64_t count_, panel_bytes_, pairs_;  // panels; pairs of depth in one, padding included
};

}  // namespace temper
