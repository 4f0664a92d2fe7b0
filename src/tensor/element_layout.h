// ElementLayout: how the elements of a matrix lie in memory: row-major, or packed into the panels that products of bf16
// read. A product reads a packed matrix in place; it packs blocks of a row-major one at each call.
//
// A panel holds 32 lines of the matrix over its whole depth, the dim that the product sums over; lines and depth are
// padded with zeros to multiples of 32. It is a sequence of pairs in depth, each of 32 words, one per line; a word has
// the line's two elements of that pair. vdpbf16ps takes half a pair's words as one operand; the matrix units of AMX
// (tdpbf16ps) take half of 16 pairs. 64 bytes between panels keep the same pair of several panels in different sets of
// a cache.
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
  // Packs `rows` rows from `first_row` on, which lie at `source` one after another, and writes the padding beside and
  // behind them. REQUIRES: first_row is even; `rows` is even unless they are the last rows.
  void PackRows(int64_t first_row, int64_t rows, const uint16_t* source, std::byte* packed) const;

 private:
  void PackLines(int64_t first_row, int64_t rows, const uint16_t* source, std::byte* packed) const;
  void PackDepth(int64_t first_row, int64_t rows, const uint16_t* source, std::byte* packed) const;

  const bool rows_are_lines_;
  const int64_t rows_, columns_;
  int64_t count_, panel_bytes_, pairs_;  // panels; pairs of depth in one, padding included
};

}  // namespace temper
