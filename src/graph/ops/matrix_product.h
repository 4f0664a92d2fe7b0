// Scratch of a blocked matrix product, for the workspace rules of ops that consist of such products.
#pragma once

#include <algorithm>

#include "base/units.h"
#include "tensor/dtype.h"

namespace temper {

// At least what a backend's product of [m, k] by [n, k] takes: panels of a block of either operand (as f32 where the
// machine has no bf16 arithmetic) and, for a bf16 output that is summed over several blocks of k, f32 sums. The numbers
// bound those of backend/cpu/products/gemm.cc, which checks that it stays within them.
// a_by_rows: A is stored with its k contiguous; otherwise a team packs it together in larger blocks. b_packed: B is
// stored in panels, which are read in place. k2: of a second pair of operands, which goes on with the sum over k; its B
// is packed in any case.
inline Bytes MatrixProductScratch(int64_t m, int64_t n, int64_t k, DType out, bool a_by_rows, int threads,
                                  bool b_packed = false, int64_t k2 = 0) {
  constexpr int64_t kTile = 32;  // at least a tile's rows and columns
  constexpr int64_t kB = 4 << 20, kSharedA = 8 << 20, kSums = 8 << 20, kDepth = 1024, kSkinny = 64;
  // Whole panels of up to 4 bytes an element, and of at least the 64 bytes per line that matrix units take; a line
  // between panels costs an eighth for the shortest panels.
  const auto line_bytes = [](int64_t k) { return std::max<int64_t>(k * 4, 64) + 8; };
  const int64_t more = k2 > 0 ? line_bytes(k2) : 0;
  const auto panels = [&](int64_t lines) { return (lines + kTile) * (line_bytes(k) + more) + (lines / 4 + 2) * 128; };
  const bool skinny = std::min(m, n) <= kSkinny;  // each thread alone
  const int64_t kA = skinny ? 448 << 10 : 1 << 20;
  Bytes bytes;
  if (!b_packed) {
    bytes = {std::min(panels(n), std::max(skinny ? kA : kB, panels(1)))};
  } else if (k2 > 0) {
    const int64_t lines = skinny && n >= m ? n / threads + 1 : n;  // each thread packs its own
    bytes = {(lines + kTile) * more + (lines / 4 + 2) * 128};
  }
  if (skinny) {
    bytes = (bytes + Bytes{std::min(panels(m), std::max(kA, panels(1)))}) * threads;
  } else {
    const Bytes alone = Bytes{std::min(panels(m), std::max(kA, panels(1)))} * threads;
    const Bytes together = {std::min(panels(m), std::max(kSharedA, panels(1)))};
    bytes += a_by_rows ? alone : out == DType::kF32 ? together : std::max(alone, together);
  }
  if (out != DType::kF32 && k > kDepth) {
    bytes +=
        Bytes{std::min((m + kTile) * (n + kTile) * 4, std::max(m * kTile * 4, kSums)) + 64} * (skinny ? threads : 1);
  }
  return AlignUp(bytes, 64);
}

}  // namespace temper
