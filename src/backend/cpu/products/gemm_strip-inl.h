// A strip as a tile kernel's calls, one after another: for instruction sets whose tiles are written as they are made.
#pragma once

#include <cstdint>

#include "backend/cpu/products/gemm_tile.h"

namespace temper {
namespace {

// out[row + i, column + j] for i < rows, j < columns, from a panel of A of width `rows`, rounded up to row_step, over
// all steps of a panel of B.
using TileFn = void (*)(const void* a, const BPanel& b, int rows, int columns, int64_t row, int64_t column,
                        const TileOutput& output);

template <int kNr, TileFn kTile>
void TilesInTurn(const TileStrip& s) {
  const TileOutput& out = s.output;
  const char* a = static_cast<const char*>(s.a);
  const auto ask_for_start = [&](int64_t first) {
    for (int64_t r = first; out.start != nullptr && r < first + s.height && r < s.rows; ++r) {
      const float* const line = out.start + (s.row + r) * out.start_stride + s.column;
      for (int64_t c = 0; c < kNr; c += 16) __builtin_prefetch(line + c, 1);
    }
  };
  ask_for_start(0);
  for (int64_t i = 0; i < s.rows; i += s.height, a += s.a_panel_bytes) {
    ask_for_start(i + s.height);  // while this one is computed
    const int64_t left = s.rows - i;
    kTile(a, s.b, static_cast<int>(left < s.height ? left : s.height), s.columns, s.row + i, s.column, out);
  }
}

}  // namespace
}  // namespace temper
