// Matrix products on the CPU: out[m, n] = scale * sum over k of A[m, k] B[n, k] + bias[n] + acc[m, n], in bf16 or f32
// with f32 sums and one rounding at the end. A second pair of operands (an adapter's) may go on with the sum: over k2
// of A2[m, k2] B2[n, k2]. Packs blocks of both operands into panels (gemm_tile.h), so that all layouts run alike.
//
// An element's sum runs over k in blocks that depend only on the planned shape: neither on the number of threads nor on
// how much of the shape a call uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/isa.h"
#include "backend/cpu/products/gemm_tile.h"
#include "base/team.h"
#include "base/units.h"
#include "tensor/element_format.h"

namespace temper {

struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;  // of A and B: kF32 or kBF16
  DType out_dtype = DType::kF32;
  bool a_k_contiguous = true;  // A[m, k] is at m * stride + k, else at k * stride + m
  bool b_k_contiguous = true;  // B[n, k] is at n * stride + k, else at k * stride + n
  int64_t k2 = 0;              // of A2 and B2, laid out as A and B; REQUIRES: a_k_contiguous. 0: there are none
  bool b_packed = false;       // B lies in panels (tensor/element_layout.h), and its stride is their bytes
};

struct GemmOperands {
  const void* a = nullptr;
  int64_t a_stride = 0;  // elements
  const void* b = nullptr;
  int64_t b_stride = 0;
  TileOutput output;  // acc may equal out
  // Where B is quantised: its format, and how many columns its rows have. Its stride is then in bytes, and `b` a row,
  // which is read from `b_column` on.
  ElementFormat b_format;
  int64_t b_columns = 0, b_column = 0;
  const void *a2 = nullptr, *b2 = nullptr;  // of the second pair; B2 is neither packed nor quantised
  int64_t a2_stride = 0, b2_stride = 0;     // elements
};

// The plan of one product: constant after construction, any thread may run it.
class Gemm {
 public:
  Gemm() = default;
  // REQUIRES: isa >= kAvx2, threads >= 1; for a packed B tiles that read it (TileKernels::pair_panels).
  Gemm(const GemmShape& shape, int threads, Isa isa);
  // With tiles of the shape's dtype, which must outlive it.
  Gemm(const GemmShape& shape, int threads, const TileKernels& tiles);

  Bytes workspace() const { return slice_ > 0 ? workspace_ * threads_ : workspace_; }

  // Forms a team. Allocates nothing.
  void Run(const GemmOperands& operands, std::byte* workspace) const;
  // Called by every member of a team of at most `threads`. `workspace` is the team's. Starts and ends with barriers if
  // it uses any: it sees what others wrote before, and everything is written after.
  void RunInTeam(const GemmOperands& operands, std::byte* workspace, TeamMember self) const;
  // As RunInTeam for dims of at most the planned ones.
  struct Extent {
    int64_t m, n, k;
  };
  void RunInTeam(const GemmOperands& operands, Extent extent, std::byte* workspace, TeamMember self) const;

 private:
  struct Block;  // of columns and k, with the addresses of the product's operands
  void RunSlice(GemmOperands operands, Extent extent, std::byte* workspace, TeamMember self) const;
  void RunBlocks(const GemmOperands& operands, Extent extent, std::byte* workspace, TeamMember self) const;
  // Whether A is read where it lies: packing what only a panel or two of B are multiplied by costs more than the
  // product.
  bool ReadsInPlace(const Block& block) const;
  // The same of an operand whose lines are contiguous, where the other one has few: one of them, or neither.
  bool ReadsLinesOfA(const Block& block) const;
  bool ReadsLinesOfB(const Block& block) const;
  void PackA(const Block& block, int64_t row, int64_t rows, std::byte* panels) const;
  void PackB(const Block& block, std::byte* panels, TeamMember self) const;
  void PackQuantised(const Block& block, int64_t line, int64_t lines, std::byte* panels) const;
  void Multiply(const Block& block, std::byte* workspace, TeamMember self) const;
  TileOutput OutputOf(const Block& block, std::byte* workspace) const;

  GemmShape shape_;
  int threads_ = 1;
  int64_t slice_ = 0;  // skinny products: columns (or rows, if more) that a member computes alone; 0: the team as one
  const TileKernels* kernels_ = nullptr;
  int64_t depth_ = 0;        // of a block of k
  int64_t columns_ = 0;      // of a block of B, a multiple of nr
  int height_ = 0;           // rows of a tile, at most mr
  int64_t tiles_ = 0;        // of rows in a block of A
  int64_t shared_rows_ = 0;  // rows of A that the team packs together, whole tiles; 0: each member packs its own
  int64_t a_panel_bytes_ = 0, b_panel_bytes_ = 0;
  int64_t more_panel_bytes_ = 0;                     // of B2 beside a packed B
  Bytes b_bytes_, a_bytes_, sum_bytes_, workspace_;  // workspace_: of a slice, or the team's
};

// The tile kernels of an instruction set. REQUIRES: isa >= kAvx2; dtype kF32 or kBF16.
const TileKernels& TilesOf(DType dtype, Isa isa);

}  // namespace temper
