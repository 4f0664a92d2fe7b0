#include "backend/cpu/gemm.h"

#include <omp.h>

#include <algorithm>

#include "base/check.h"

namespace temper {
namespace {

// Block sizes. A tile reads both of its panels from the second-level cache; what limits depth is their size, what
// limits it from below is the traffic of partial sums (a depth of 256 costs 10 % of the peak).
constexpr int64_t kDepthBytes = 4096;  // of a line: 2048 bf16
constexpr int64_t kABlockBytes =
    448 << 10;                             // per thread: most of a second-level cache of 1 MiB, a panel of B beside it
constexpr int64_t kBBlockBytes = 4 << 20;  // shared, in the third-level cache
// Below this a block of B stays in the second-level cache and tiles go along rows of the output, not down columns.
constexpr int64_t kSmallBlockBytes = 128 << 10;
// f32 sums of a block of columns, where a bf16 output needs them.
constexpr int64_t kSumBytes = 8 << 20;
constexpr int64_t kAlign = 64;

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t RoundUp(int64_t a, int64_t b) {
  return CeilDiv(a, b) * b;
}

// The largest piece of at most `limit` that is a multiple of `unit` and cuts `n` into pieces of nearly equal size.
int64_t EvenPiece(int64_t n, int64_t limit, int64_t unit) {
  const int64_t pieces = CeilDiv(n, std::max(unit, limit / unit * unit));
  return RoundUp(CeilDiv(n, std::max<int64_t>(pieces, 1)), unit);
}

struct Range {
  int64_t begin, end;
};
// Part `i` of `parts` of [0, n), cut at multiples of `unit`.
Range PartOf(int64_t n, int64_t unit, int64_t i, int64_t parts) {
  const int64_t units = CeilDiv(n, unit);
  return {std::min(n, units * i / parts * unit), std::min(n, units * (i + 1) / parts * unit)};
}

const char* Offset(const void* p, int64_t elements, int64_t size) {
  return static_cast<const char*>(p) + elements * size;
}

}  // namespace

const TileKernels& TilesOf(DType dtype, Isa isa) {
  TEMPER_CHECK(isa >= Isa::kAvx2 && (dtype == DType::kF32 || dtype == DType::kBF16)) << ToString(dtype);
  if (dtype == DType::kF32) return isa >= Isa::kAvx512 ? kTilesF32Avx512 : kTilesF32Avx2;
  if (isa == Isa::kAvx512Bf16) return kTilesBF16Avx512;
  return isa == Isa::kAvx512 ? kTilesBF16AsF32Avx512 : kTilesBF16AsF32Avx2;
}

Gemm::Gemm(const GemmShape& shape, int threads, Isa isa)
    : shape_(shape), threads_(threads), kernels_(&TilesOf(shape.dtype, isa)) {
  TEMPER_CHECK(threads >= 1) << threads;
  const TileKernels& t = *kernels_;
  const int64_t element = t.element_size;
  depth_ = EvenPiece(std::max<int64_t>(shape.k, 1), kDepthBytes / element, t.k_step);
  rows_ = EvenPiece(std::max<int64_t>(shape.m, 1), kABlockBytes / (depth_ * element), t.mr);
  // Partial sums of several blocks of k are f32: the output itself, or a block beside it.
  const bool staged = depth_ < shape.k && shape.out_dtype != DType::kF32;
  int64_t columns = kBBlockBytes / (depth_ * element);
  if (staged) columns = std::min(columns, kSumBytes / (4 * std::max<int64_t>(shape.m, 1)));
  columns_ = EvenPiece(std::max<int64_t>(shape.n, 1), columns, t.nr);
  if (staged) sum_bytes_ = AlignUp({shape.m * columns_ * 4}, kAlign);
  b_bytes_ = AlignUp({columns_ * depth_ * element + kPanelSlack}, kAlign);
  a_bytes_ = AlignUp({rows_ * depth_ * element + kPanelSlack}, kAlign);
  workspace_ = b_bytes_ + a_bytes_ * threads + sum_bytes_;
}

void Gemm::Run(const GemmOperands& operands, std::byte* workspace) const {
  if (threads_ == 1) return RunInTeam(operands, workspace, {0, 1});
#pragma omp parallel num_threads(threads_)
  RunInTeam(operands, workspace, {omp_get_thread_num(), omp_get_num_threads()});
}

void Gemm::RunInTeam(const GemmOperands& operands, std::byte* workspace, TeamMember self) const {
  RunInTeam(operands, {shape_.m, shape_.k}, workspace, self);
}

void Gemm::RunInTeam(const GemmOperands& operands, Extent extent, std::byte* workspace, TeamMember self) const {
  const int64_t m = extent.m, all_k = extent.k;
  TEMPER_CHECK(m <= shape_.m && all_k <= shape_.k && self.size <= threads_) << m << ", team of " << self.size;
  const TileKernels& t = *kernels_;
  std::byte* b_block = workspace;
  std::byte* a_block = workspace + b_bytes_.v + a_bytes_.v * self.index;
  float* sums = reinterpret_cast<float*>(workspace + b_bytes_.v + a_bytes_.v * threads_);

  // Members share rows, or columns where rows are few.
  int row_parts = self.size;
  while (row_parts > 1 && (self.size % row_parts != 0 || m / row_parts < 2 * t.mr)) --row_parts;
  const int column_parts = self.size / row_parts;
  const Range my_rows = PartOf(m, 1, self.index / column_parts, row_parts);

  for (int64_t column = 0; column < shape_.n; column += columns_) {
    const int64_t columns = std::min(columns_, shape_.n - column);
    const Range my_columns = PartOf(columns, t.nr, self.index % column_parts, column_parts);
    for (int64_t k = 0; k == 0 || k < all_k; k += depth_) {
      const int64_t depth = std::min(depth_, all_k - k);
      const int64_t steps = CeilDiv(depth, t.k_step);
      const int64_t line_bytes = steps * t.k_step * t.element_size;

#pragma omp barrier
      const Range pack = PartOf(columns, t.nr, self.index, self.size);
      if (pack.begin < pack.end) {
        const int64_t line = column + pack.begin;
        const auto pack_b = shape_.b_k_contiguous ? t.pack_k : t.pack_lines;
        const int64_t at = shape_.b_k_contiguous ? line * operands.b_stride + k : k * operands.b_stride + line;
        pack_b(Offset(operands.b, at, t.source_size), operands.b_stride, pack.end - pack.begin, t.nr, true, depth,
               b_block + pack.begin * line_bytes);
      }
#pragma omp barrier

      const bool first = k == 0, last = k + depth >= all_k;
      TileOutput out = operands.output;
      if (sum_bytes_.v > 0) {
        if (!last) out = {.out = sums - column, .out_stride = columns_};
        if (!first) {
          out.sum = sums - column;
          out.sum_stride = columns_;
        }
      } else if (!first) {
        out.bias = nullptr;
        out.acc = out.out;
        out.acc_stride = out.out_stride;
        out.acc_dtype = DType::kF32;
      }

      for (int64_t row = my_rows.begin; row < my_rows.end; row += rows_) {
        const int64_t rows = std::min(rows_, my_rows.end - row);
        const auto pack_a = shape_.a_k_contiguous ? t.pack_k : t.pack_lines;
        const int64_t at = shape_.a_k_contiguous ? row * operands.a_stride + k : k * operands.a_stride + row;
        pack_a(Offset(operands.a, at, t.source_size), operands.a_stride, rows, t.mr, false, depth, a_block);
        const auto tile = [&](int64_t i, int64_t j) {
          t.tile(a_block + i * line_bytes, b_block + j * line_bytes, steps,
                 static_cast<int>(std::min<int64_t>(t.mr, rows - i)),
                 static_cast<int>(std::min<int64_t>(t.nr, columns - j)), row + i, column + j, out);
        };
        if ((my_columns.end - my_columns.begin) * line_bytes <= kSmallBlockBytes) {
          for (int64_t i = 0; i < rows; i += t.mr) {
            for (int64_t j = my_columns.begin; j < my_columns.end; j += t.nr) tile(i, j);
          }
        } else {
          for (int64_t j = my_columns.begin; j < my_columns.end; j += t.nr) {
            for (int64_t i = 0; i < rows; i += t.mr) tile(i, j);
          }
        }
      }
    }
  }
#pragma omp barrier
}

}  // namespace temper
