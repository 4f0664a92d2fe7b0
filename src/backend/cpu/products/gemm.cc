#include "backend/cpu/products/gemm.h"

#include <algorithm>

#include "backend/cpu/formats/format_readers.h"
#include "base/check.h"
#include "tensor/element_layout.h"

namespace temper {
namespace {

// Block sizes. A tile reads its panels from the first- and second-level caches; what limits depth (TileKernels) is
// their size, what limits it from below is the traffic of partial sums (a depth of 256 costs 10 % of AVX-512's peak).
constexpr int64_t kBBlockBytes = 4 << 20;            // shared, in the third-level cache
constexpr int64_t kASharedBytes = 8 << 20;           // the same of A, where its lines are contiguous
constexpr int64_t kSumBytes = 8 << 20;               // f32 sums of a block of columns, where a bf16 output needs them
constexpr int64_t kSkinny = 64, kSkinnyDepth = 256;  // LoRA's ranks, and a depth for their gradients
constexpr int64_t kThin =
    32;  // lines of an operand, for which packing the other one takes longer than reading it apart
// Below this a block of B stays in the second-level cache and tiles go along rows of the output, not down columns. So
// they do where k is short (a LoRA branch added to its base): nothing then hides that each row of a tile down a column
// is on a page of its own, which takes up to three times as long.
constexpr int64_t kSmallBlockBytes = 128 << 10, kShortDepth = 128;
constexpr int64_t kAlign = 64;
// Of an output: what is larger is not in a second-level cache when it is written, nor when it is read. (On 2 cores
// products into 3 MiB are written faster past the caches, though each core's half would fit; many cores were not
// tried.)
constexpr int64_t kCachedOutput = 2 << 20;

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
  if (isa == Isa::kAmxBf16) return kTilesBF16Amx;
  if (isa == Isa::kAvx512Bf16Dot) return kTilesBF16Avx512;
  return isa >= Isa::kAvx512 ? kTilesBF16AsF32Avx512 : kTilesBF16AsF32Avx2;
}

struct Gemm::Block {
  const GemmOperands* operands;
  int64_t m, all_k;         // of the whole product
  int64_t column, columns;  // [column, column + columns)
  int64_t k, depth;
  int64_t more = 0;           // of k2: behind the last block of k
  int64_t row = 0, rows = 0;  // of A packed by the team, or all
};

Gemm::Gemm(const GemmShape& shape, int threads, Isa isa) : Gemm(shape, threads, TilesOf(shape.dtype, isa)) {}

Gemm::Gemm(const GemmShape& shape, int threads, const TileKernels& tiles)
    : shape_(shape), threads_(threads), kernels_(&tiles) {
  TEMPER_CHECK(threads >= 1) << threads;
  const TileKernels& t = *kernels_;
  TEMPER_CHECK(!shape.b_packed || (t.pair_panels && t.nr == kPanelLines && kPanelStep % t.k_step == 0))
      << "these tiles do not read packed operands";
  TEMPER_CHECK(shape.k2 == 0 || shape.a_k_contiguous) << "a second pair of operands";
  const int64_t element = t.element_size;
  int64_t m = std::max<int64_t>(shape.m, 1), n = std::max<int64_t>(shape.n, 1);
  // A skinny product reads its long operand once and waits for memory. Members work alone, each on its slice of the
  // long side, through blocks that stay in the second-level cache; they need no barriers.
  const bool skinny = std::min(m, n) <= kSkinny;
  if (skinny) {
    slice_ = RoundUp(CeilDiv(std::max(m, n), threads), t.nr);
    int64_t& longest = n >= m ? n : m;
    longest = std::min(slice_, longest);
  }
  const bool lines = !shape.a_k_contiguous && !shape.b_k_contiguous && shape.out_dtype == DType::kF32;
  depth_ = EvenPiece(std::max<int64_t>(shape.k, 1), skinny && lines ? kSkinnyDepth : t.depth_bytes / element, t.k_step);
  height_ = static_cast<int>(EvenPiece(m, t.mr, t.row_step));
  // A line between panels: their steps would else fall into the same lines of the first-level cache.
  const int64_t more_bytes = RoundUp(shape.k2, t.k_step) * element;
  const int64_t line_bytes = RoundUp(depth_, t.k_step) * element + more_bytes;
  a_panel_bytes_ = RoundUp(line_bytes * height_, kAlign) + kAlign;
  b_panel_bytes_ = RoundUp(line_bytes * t.nr, kAlign) + kAlign;
  tiles_ = std::min(CeilDiv(m, height_),
                    std::max<int64_t>(1, (skinny ? kCachedBlockBytes : t.a_block_bytes) / a_panel_bytes_));
  // Partial sums of several blocks of k are f32: the output itself, or a block beside it.
  const bool staged = depth_ < shape.k && shape.out_dtype != DType::kF32;
  int64_t columns = std::max<int64_t>(1, (skinny ? kCachedBlockBytes : kBBlockBytes) / b_panel_bytes_) * t.nr;
  if (staged) columns = std::min(columns, kSumBytes / (4 * m));
  columns_ = EvenPiece(n, columns, t.nr);
  if (staged) sum_bytes_ = AlignUp({m * columns_ * 4}, kAlign);
  if (shape.b_packed && shape.k2 > 0) more_panel_bytes_ = RoundUp(more_bytes * t.nr, kAlign) + kAlign;
  b_bytes_ = {columns_ / t.nr * (shape.b_packed ? more_panel_bytes_ : b_panel_bytes_)};
  // Contiguous lines are read in runs as long as a block has rows: only one of many rows reads memory at speed. (With
  // sums beside the output, blocks of k must be innermost, and A is packed for each.)
  if (!shape.a_k_contiguous && !staged) {
    shared_rows_ = EvenPiece(
        m, std::max<int64_t>(1, (skinny ? kCachedBlockBytes : kASharedBytes) / a_panel_bytes_) * height_, height_);
    a_bytes_ = {shared_rows_ / height_ * a_panel_bytes_};
    workspace_ = b_bytes_ + a_bytes_ + sum_bytes_;
  } else {
    a_bytes_ = {tiles_ * a_panel_bytes_};
    workspace_ = b_bytes_ + a_bytes_ * (skinny ? 1 : threads) + sum_bytes_;
  }
}

void Gemm::Run(const GemmOperands& operands, std::byte* workspace) const {
  RunTeam(threads_, [&](TeamMember self) { RunInTeam(operands, workspace, self); });
}

void Gemm::RunInTeam(const GemmOperands& operands, std::byte* workspace, TeamMember self) const {
  RunInTeam(operands, {shape_.m, shape_.n, shape_.k}, workspace, self);
}

void Gemm::RunInTeam(const GemmOperands& operands, Extent extent, std::byte* workspace, TeamMember self) const {
  TEMPER_CHECK(extent.m <= shape_.m && extent.n <= shape_.n && extent.k <= shape_.k && self.size <= threads_)
      << extent.m << ", " << extent.n << ", " << extent.k << ", team of " << self.size;
  TEMPER_CHECK(!operands.b_format.quantised() || kernels_->readers != nullptr)
      << ToString(operands.b_format) << " is computed in bf16";
  if (kernels_->enter != nullptr) kernels_->enter();
  if (slice_ > 0) {
    self.Meet();
    // A team smaller than planned has several slices for each.
    for (int i = self.index; i < threads_; i += self.size) {
      RunSlice(operands, extent, workspace + workspace_.v * i, {i, threads_});
    }
  } else {
    RunBlocks(operands, extent, workspace, self);
  }
  if (kernels_->leave != nullptr) kernels_->leave();
  self.Meet();
}

void Gemm::RunSlice(GemmOperands o, Extent extent, std::byte* workspace, TeamMember self) const {
  const int64_t begin = slice_ * self.index;
  TileOutput& out = o.output;
  const auto shift = [](auto& pointer, int64_t elements, int64_t size) {
    if (pointer != nullptr) {
      pointer = const_cast<std::byte*>(static_cast<const std::byte*>(pointer)) + elements * size;
    }
  };
  if (shape_.n >= shape_.m) {
    if (begin >= extent.n) return;
    extent.n = std::min(slice_, extent.n - begin);
    if (shape_.b_packed) {
      shift(o.b, begin / kernels_->nr * o.b_stride, 1);
    } else if (!o.b_format.quantised()) {
      shift(o.b, shape_.b_k_contiguous ? begin * o.b_stride : begin, kernels_->source_size);
    } else if (shape_.b_k_contiguous) {
      shift(o.b, begin * o.b_stride, 1);
    } else {
      o.b_column += begin;
    }
    shift(o.b2, shape_.b_k_contiguous ? begin * o.b2_stride : begin, kernels_->source_size);
    shift(out.out, begin, SizeOf(out.out_dtype));
    shift(out.acc, begin, SizeOf(out.acc_dtype));
    shift(out.bias, begin, SizeOf(out.bias_dtype));
    if (out.start != nullptr) out.start += begin;
  } else {
    if (begin >= extent.m) return;
    extent.m = std::min(slice_, extent.m - begin);
    shift(o.a, shape_.a_k_contiguous ? begin * o.a_stride : begin, kernels_->source_size);
    shift(o.a2, begin * o.a2_stride, kernels_->source_size);
    shift(out.out, begin * out.out_stride, SizeOf(out.out_dtype));
    shift(out.acc, begin * out.acc_stride, SizeOf(out.acc_dtype));
    if (out.start != nullptr) out.start += begin * out.start_stride;
  }
  RunBlocks(o, extent, workspace, {0, 1});
}

void Gemm::RunBlocks(const GemmOperands& operands, Extent extent, std::byte* workspace, TeamMember self) const {
  Block block = {.operands = &operands, .m = extent.m, .all_k = extent.k, .rows = extent.m};
  const auto for_columns = [&](const auto& body) {
    for (block.column = 0; block.column < extent.n; block.column += columns_) {
      block.columns = std::min(columns_, extent.n - block.column);
      body();
    }
  };
  const auto for_depth = [&](const auto& body) {
    for (block.k = 0; block.k == 0 || block.k < extent.k; block.k += depth_) {
      block.depth = std::min(depth_, extent.k - block.k);
      block.more = block.k + block.depth >= extent.k ? shape_.k2 : 0;
      body();
    }
  };
  const auto multiply = [&] {
    self.Meet();
    if ((!shape_.b_packed || block.more > 0) && !ReadsLinesOfB(block)) {
      PackB(block, workspace, self);
      self.Meet();
    }
    Multiply(block, workspace, self);
  };
  if (shared_rows_ == 0) {
    for_columns([&] { for_depth(multiply); });
  } else {
    for_depth([&] {
      for (block.row = 0; block.row < extent.m; block.row += shared_rows_) {
        block.rows = std::min(shared_rows_, extent.m - block.row);
        self.Meet();
        const Range mine = PartOf(block.rows, height_, self.index, self.size);
        if (!ReadsLinesOfA(block)) {
          PackA(block, block.row + mine.begin, mine.end - mine.begin,
                workspace + b_bytes_.v + mine.begin / height_ * a_panel_bytes_);
        }
        for_columns(multiply);
      }
    });
  }
}

bool Gemm::ReadsInPlace(const Block& block) const {
  const TileKernels& t = *kernels_;
  return t.rows_in_place && shape_.a_k_contiguous && shape_.n <= kSkinny && block.more == 0 &&
         block.depth % t.k_step == 0 && block.m % t.row_step == 0;
}

bool Gemm::ReadsLinesOfA(const Block& block) const {
  return kernels_->lines_in_place && slice_ > 0 && shared_rows_ > 0 && !shape_.b_k_contiguous && shape_.n <= kThin &&
         shape_.m > shape_.n && block.more == 0;
}

bool Gemm::ReadsLinesOfB(const Block& block) const {
  return kernels_->lines_in_place && slice_ > 0 && shared_rows_ > 0 && !shape_.b_k_contiguous && shape_.m <= kThin &&
         shape_.m <= shape_.n && block.more == 0 && !block.operands->b_format.quantised() &&
         block.columns % kernels_->nr == 0;
}

void Gemm::PackA(const Block& block, int64_t row, int64_t rows, std::byte* panels) const {
  if (rows <= 0) return;
  const GemmOperands& o = *block.operands;
  const TileKernels& t = *kernels_;
  const auto pack = shape_.a_k_contiguous ? t.pack_k : t.pack_lines;
  const int64_t at = shape_.a_k_contiguous ? row * o.a_stride + block.k : block.k * o.a_stride + row;
  pack(Offset(o.a, at, t.source_size), o.a_stride, rows, height_, false, block.depth, panels, a_panel_bytes_);
  if (block.more == 0) return;
  // A2 lies behind A in a panel; a last one of fewer rows is narrower.
  const int64_t lines = CeilDiv(block.depth, t.k_step) * t.k_step * t.element_size;
  const auto pack_more = [&](int64_t first, int64_t count, int64_t width) {
    if (count == 0) return;
    t.pack_k(Offset(o.a2, (row + first) * o.a2_stride, t.source_size), o.a2_stride, count, height_, false, block.more,
             panels + first / height_ * a_panel_bytes_ + lines * width, a_panel_bytes_);
  };
  const int64_t full = rows / height_ * height_, rest = rows - full;
  pack_more(0, full, height_);
  pack_more(full, rest, RoundUp(rest, t.row_step));
}

void Gemm::PackB(const Block& block, std::byte* panels, TeamMember self) const {
  const Range mine = PartOf(block.columns, kernels_->nr, self.index, self.size);
  if (mine.begin >= mine.end) return;
  const GemmOperands& o = *block.operands;
  const TileKernels& t = *kernels_;
  const int64_t line = block.column + mine.begin, lines = mine.end - mine.begin;
  const auto pack = shape_.b_k_contiguous ? t.pack_k : t.pack_lines;
  const int64_t panel_bytes = shape_.b_packed ? more_panel_bytes_ : b_panel_bytes_;
  std::byte* to = panels + mine.begin / t.nr * panel_bytes;
  if (!shape_.b_packed) {
    if (o.b_format.quantised()) {
      PackQuantised(block, line, lines, to);
    } else {
      const int64_t at = shape_.b_k_contiguous ? line * o.b_stride + block.k : block.k * o.b_stride + line;
      pack(Offset(o.b, at, t.source_size), o.b_stride, lines, t.nr, true, block.depth, to, panel_bytes);
    }
    to += CeilDiv(block.depth, t.k_step) * t.k_step * t.nr * t.element_size;
  }
  if (block.more == 0) return;
  const int64_t at = shape_.b_k_contiguous ? line * o.b2_stride : line;
  pack(Offset(o.b2, at, t.source_size), o.b2_stride, lines, t.nr, true, block.more, to, panel_bytes);
}

// A piece of B becomes bf16 on the stack and is packed from there: the piece and what it becomes in a panel stay in the
// first-level cache.
void Gemm::PackQuantised(const Block& block, int64_t line, int64_t lines, std::byte* panels) const {
  constexpr int64_t kPiece = 8192;         // elements
  constexpr int64_t kLongRun = 256;        // of a row
  static_assert(kPiece / kLongRun == 32);  // k or lines: a multiple of each k_step, and no less than nr
  alignas(64) uint16_t piece[kPiece];
  const GemmOperands& o = *block.operands;
  const TileKernels& t = *kernels_;
  const int64_t nr = t.nr, at_once = shape_.b_k_contiguous ? nr : kLongRun;
  const int64_t deep = shape_.b_k_contiguous ? kLongRun : kPiece / kLongRun;
  const auto read = [&](int64_t line_of_b, int64_t column, int64_t n, uint16_t* to) {
    const std::byte* const row = static_cast<const std::byte*>(o.b) + line_of_b * o.b_stride;
    const int64_t first = o.b_column + column;
    ReadNumbers(*t.readers, o.b_format, row, o.b_columns, first, first + n, to);
  };
  for (int64_t first = 0; first < lines; first += at_once) {
    const int64_t count = std::min(at_once, lines - first);
    for (int64_t k = 0; k < block.depth; k += deep) {
      const int64_t depth = std::min(deep, block.depth - k);
      std::byte* const to = panels + first / nr * b_panel_bytes_ + k * nr * t.element_size;
      if (shape_.b_k_contiguous) {
        for (int64_t i = 0; i < count; ++i) read(line + first + i, block.k + k, depth, piece + i * deep);
        t.pack_k(piece, deep, count, t.nr, true, depth, to, b_panel_bytes_);
      } else {
        for (int64_t i = 0; i < depth; ++i) read(block.k + k + i, line + first, count, piece + i * at_once);
        t.pack_lines(piece, at_once, count, t.nr, true, depth, to, b_panel_bytes_);
      }
    }
  }
}

TileOutput Gemm::OutputOf(const Block& block, std::byte* workspace) const {
  TileOutput out = block.operands->output;
  const bool first = block.k == 0, last = block.k + block.depth >= block.all_k;
  if (sum_bytes_.v > 0) {
    float* sums = reinterpret_cast<float*>(workspace + (workspace_ - sum_bytes_).v) - block.column;
    if (!last) out = {.out = sums, .out_stride = columns_};
    if (!first) {
      out.sum = sums;
      out.sum_stride = columns_;
    }
  } else if (!first && out.goes_on) {
    out.start = static_cast<const float*>(out.out);
    out.start_stride = out.out_stride;
  } else if (!first) {
    out.bias = nullptr;
    out.acc = out.out;
    out.acc_stride = out.out_stride;
    out.acc_dtype = DType::kF32;
  }
  return out;
}

void Gemm::Multiply(const Block& block, std::byte* workspace, TeamMember self) const {
  const TileKernels& t = *kernels_;
  const bool shared = shared_rows_ > 0;
  const std::byte* b_panels = workspace;
  int64_t b_panel_bytes = b_panel_bytes_;
  if (shape_.b_packed) {
    const GemmOperands& o = *block.operands;
    b_panel_bytes = o.b_stride;
    b_panels = static_cast<const std::byte*>(o.b) + block.column / t.nr * o.b_stride + block.k * t.nr * t.element_size;
  }
  int64_t a_step_bytes = 0, b_step_bytes = 0;
  if (ReadsLinesOfB(block)) {
    b_step_bytes = block.operands->b_stride * t.source_size;
    b_panel_bytes = static_cast<int64_t>(t.nr) * t.source_size;
    b_panels = reinterpret_cast<const std::byte*>(
        Offset(block.operands->b, block.k * block.operands->b_stride + block.column, t.source_size));
  }
  std::byte* a_panels = workspace + b_bytes_.v + (shared ? 0 : a_bytes_.v * self.index);
  const TileOutput out = OutputOf(block, workspace);
  const int64_t steps = CeilDiv(block.depth, t.k_step), more_steps = CeilDiv(block.more, t.k_step);
  const int64_t tiles = CeilDiv(block.rows, height_), panels = CeilDiv(block.columns, t.nr);

  // Members share the rows, or the columns where rows are few. A tile on the border of two members is theirs in turn:
  // the one's in the first columns, the other's in the last, by as much as makes the work equal.
  int64_t row_parts = self.size;
  while (row_parts > 1 && (self.size % row_parts != 0 || tiles < 2 * row_parts)) --row_parts;
  const int64_t column_parts = self.size / row_parts, part = self.index / column_parts;
  const int64_t panel_begin = panels * (self.index % column_parts) / column_parts;
  const int64_t panel_end = panels * (self.index % column_parts + 1) / column_parts;
  const auto border = [&](int64_t i, int64_t j) { return (tiles * i * panels + row_parts * j) / (row_parts * panels); };
  const int64_t tile_begin = border(part, panel_begin),
                tile_end = border(part + 1, std::max<int64_t>(panel_end, 1) - 1);
  const int64_t at_once = EvenPiece(std::max<int64_t>(tile_end - tile_begin, 1), tiles_, 1);
  // Partial sums are read again by the next block of k.
  const bool past_caches =
      out.out == block.operands->output.out && shape_.m * shape_.n * SizeOf(shape_.out_dtype) > kCachedOutput;
  const int64_t row_bytes = ReadsInPlace(block) ? block.operands->a_stride * t.source_size : 0;
  for (int64_t begin = tile_begin; begin < tile_end; begin += at_once) {
    const int64_t end = std::min(tile_end, begin + at_once);
    const std::byte* a = a_panels;
    int64_t a_panel_bytes = a_panel_bytes_;
    if (row_bytes > 0) {
      const int64_t row = block.row + begin * height_;
      a = reinterpret_cast<const std::byte*>(
          Offset(block.operands->a, row * block.operands->a_stride + block.k, t.source_size));
      a_panel_bytes = height_ * row_bytes;
    } else if (ReadsLinesOfA(block)) {
      a_step_bytes = block.operands->a_stride * t.source_size;
      a = reinterpret_cast<const std::byte*>(
          Offset(block.operands->a, block.k * block.operands->a_stride + block.row + begin * height_, t.source_size));
      a_panel_bytes = height_ * t.source_size;
    } else if (shared) {
      a += begin * a_panel_bytes_;
    } else {
      PackA(block, block.row + begin * height_, std::min(end * height_, block.rows) - begin * height_, a_panels);
    }
    // Tiles [i, end_i) of column j.
    const auto multiply = [&](int64_t i, int64_t end_i, int64_t j) {
      TileStrip strip = {.a = a + (i - begin) * a_panel_bytes,
                         .a_panel_bytes = a_panel_bytes,
                         .a_row_bytes = row_bytes,
                         .a_step_bytes = a_step_bytes,
                         .b_step_bytes = b_step_bytes,
                         .height = height_,
                         .row = block.row + i * height_,
                         .rows = std::min(end_i * height_, block.rows) - i * height_,
                         .b = {b_panels + j * b_panel_bytes, steps},
                         .column = block.column + j * t.nr,
                         .columns = static_cast<int>(std::min<int64_t>(t.nr, block.columns - j * t.nr)),
                         .output = out,
                         .past_caches = past_caches};
      if (shape_.b_packed) {
        strip.b.more = workspace + j * more_panel_bytes_;
        strip.b.more_steps = more_steps;
      } else {
        strip.b.steps += more_steps;
      }
      if (j + 1 < panel_end) {
        strip.next = b_panels + (j + 1) * b_panel_bytes;
        strip.next_bytes = steps * t.k_step * t.nr * t.element_size;
      }
      t.strip(strip);
    };
    const auto first_of = [&](int64_t j) { return std::max(begin, border(part, j)); };
    const auto last_of = [&](int64_t j) { return std::min(end, border(part + 1, j)); };
    if (depth_ <= kShortDepth || (panel_end - panel_begin) * b_panel_bytes_ <= kSmallBlockBytes) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = panel_begin; j < panel_end; ++j) {
          if (i >= first_of(j) && i < last_of(j)) multiply(i, i + 1, j);
        }
      }
    } else {
      for (int64_t j = panel_begin; j < panel_end; ++j) {
        if (first_of(j) < last_of(j)) multiply(first_of(j), last_of(j), j);
      }
    }
  }
  if (t.finish != nullptr) t.finish();
}

}  // namespace temper
