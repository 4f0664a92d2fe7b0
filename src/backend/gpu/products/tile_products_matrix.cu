// Our own matrix products in bf16, on matrix units: a block makes 128 x 128 of out, 64 terms at a time. Both operands
// lie in shared memory with their terms side by side, however they lie in memory; while a tile is multiplied the next
// one comes into registers. Of AMD's four wavefronts each makes 64 x 64: it reads 4096 bytes per 16 terms, 32 flops a
// byte, twice what keeps MI300X's matrix units busy (1 flop a byte in tile_products.cu).
#include "backend/gpu/products/tile_products.h"
#include "backend/gpu/units/warp_matrix.h"

namespace temper::gpu {
namespace {

constexpr int kSide = 128;                   // rows and columns of out, of a block
constexpr int kDepth = 64;                   // terms at a time
constexpr int64_t kMostTilesAcross = 65535;  // of a grid's second dim

// x[rows, k], or x[k, rows].
struct Operand {
  const bf16* x;
  int64_t rows, k;
  bool k_contiguous, whole;  // whole: eight neighbours from a multiple of 8 on are aligned to 16 bytes
};

template <class U>
class PanelCopy {
 public:
  static constexpr int kCopies = kSide * kDepth / 8 / kBlockThreads;

  // Rows [first, first + kSide), terms [k_begin, k_begin + kDepth) into registers, zeros where there are none.
  __device__ __forceinline__ void Start(const Operand& o, int64_t first, int64_t k_begin) {
    TEMPER_UNROLL
    for (int n = 0; n < kCopies; ++n) {
      const int64_t row = first + Row(o, n), term = k_begin + Term(o, n);
      const int64_t left = o.k_contiguous ? o.k - term : o.rows - row;  // of the neighbours
      const bool there = o.k_contiguous ? row < o.rows : term < o.k;
      const bf16* const from = o.x + (o.k_contiguous ? row * o.k + term : term * o.rows + row);
      Pack<uint32_t, 4> words = {};
      if (there && left >= 8 && o.whole) {
        words = *reinterpret_cast<const Pack<uint32_t, 4>*>(from);
      } else if (there) {
        TEMPER_UNROLL
        for (int i = 0; i < 8; ++i) words.x[i / 2] |= i < left ? uint32_t{from[i].bits} << i % 2 * 16 : 0;
      }
      TEMPER_UNROLL
      for (int i = 0; i < 4; ++i) words_[n][i] = words.x[i];
    }
  }
  __device__ __forceinline__ void Finish(const Operand& o, Shared<Bf16Bits> tile) {
    if (o.k_contiguous) {
      TEMPER_UNROLL
      for (int n = 0; n < kCopies; ++n) WriteWords(tile, U::template At<kDepth>(Row(o, n), Term(o, n)), words_[n]);
      return;
    }
    TEMPER_UNROLL
    for (int n = 0; n < kCopies; n += 2) {  // two neighbouring terms of eight rows
      TEMPER_UNROLL
      for (int i = 0; i < 8; ++i) {
        const uint32_t low = words_[n][i / 2], high = words_[n + 1][i / 2];
        const uint32_t pair[1] = {i % 2 == 0 ? LowerHalves(low, high) : UpperHalves(low, high)};
        WriteWords(tile, U::template At<kDepth>(Row(o, n) + i, Term(o, n)), pair);
      }
    }
  }

 private:
  // Where the n-th eight elements of this thread begin. Neighbours in the block read neighbours in memory: 8 threads
  // the 64 terms of a row; or 16 threads 128 rows of a term, and the same threads the next term.
  __device__ static int Row(const Operand& o, int n) {
    const int i = static_cast<int>(threadIdx.x) + (o.k_contiguous ? n : n / 2) * kBlockThreads;
    return o.k_contiguous ? i / 8 : i % 16 * 8;
  }
  __device__ static int Term(const Operand& o, int n) {
    const int i = static_cast<int>(threadIdx.x) + (o.k_contiguous ? n : n / 2) * kBlockThreads;
    return o.k_contiguous ? i % 8 * 8 : i / 16 * 2 + n % 2;
  }
  uint32_t words_[kCopies][4];
};

template <class U, class Out>
__global__ void TEMPER_LAUNCH_BOUNDS(kBlockThreads, 2)
    MatrixTileProduct(Operand a, Operand b, float scale, const bf16* bias, const Out* acc, Out* out) {
  // Of a warp; two of them stand side by side.
  constexpr int kWarpRows = kSide * 2 * U::kLanes / kBlockThreads, kWarpColumns = kSide / 2;
  constexpr int kM = kWarpRows / U::kRows, kN = kWarpColumns / U::kColumns, kInSpan = U::kSpan / U::kColumns;
  TEMPER_SHARED(Bf16Bits, a_tile, kSide * U::template kStride<kDepth>);
  TEMPER_SHARED(Bf16Bits, b_tile, kSide * U::template kStride<kDepth>);
  const int lane = static_cast<int>(threadIdx.x) % U::kLanes, warp = static_cast<int>(threadIdx.x) / U::kLanes;
  const int64_t m_begin = int64_t{blockIdx.y} * kSide, n_begin = int64_t{blockIdx.x} * kSide;
  const int warp_m = warp / 2 * kWarpRows, warp_n = warp % 2 * kWarpColumns;

  typename U::C sum[kM][kN] = {};
  PanelCopy<U> a_copy, b_copy;
  if (a.k > 0) {
    a_copy.Start(a, m_begin, 0);
    b_copy.Start(b, n_begin, 0);
  }
  for (int64_t k_begin = 0; k_begin < a.k; k_begin += kDepth) {
    a_copy.Finish(a, a_tile);
    b_copy.Finish(b, b_tile);
    TEMPER_SYNC_SHARED();
    if (k_begin + kDepth < a.k) {
      a_copy.Start(a, m_begin, k_begin + kDepth);
      b_copy.Start(b, n_begin, k_begin + kDepth);
    }
    TEMPER_UNROLL
    for (int e = 0; e < kDepth; e += 16) {
      typename U::A rows[kM];
      TEMPER_UNROLL
      for (int m = 0; m < kM; ++m) rows[m] = U::template RowsAsRows<kDepth>(a_tile, warp_m + m * U::kRows, e, lane);
      TEMPER_UNROLL
      for (int first = 0; first < kN; first += kInSpan) {
        typename U::B columns[kInSpan];
        U::template RowsAsColumns<kDepth>(b_tile, warp_n + first * U::kColumns, e, lane, columns);
        TEMPER_UNROLL
        for (int n = 0; n < kInSpan; ++n) {
          TEMPER_UNROLL
          for (int m = 0; m < kM; ++m) U::MultiplyAdd(rows[m], columns[n], sum[m][first + n]);
        }
      }
    }
    TEMPER_SYNC_SHARED();  // the next terms overwrite these
  }
  TEMPER_UNROLL
  for (int m = 0; m < kM; ++m) {
    TEMPER_UNROLL
    for (int n = 0; n < kN; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < U::kSums; ++i) {
        const int64_t row = m_begin + warp_m + m * U::kRows + U::Row(lane, U::HeldRow(i));
        const int64_t column = n_begin + warp_n + n * U::kColumns + U::Column(lane, i);
        if (row >= a.rows || column >= b.rows) continue;
        float x = sum[m][n].x[i] * scale;
        if (bias != nullptr) x += Get(bias + column);
        if (acc != nullptr) x += Get(acc + row * b.rows + column);
        Put(out + row * b.rows + column, x);
      }
    }
  }
}

template <class U, class Out>
class MatrixTileProductKernel final : public MatrixProduct {
 public:
  MatrixTileProductKernel(const ProductShape& shape, gpuStream_t stream) : shape_(shape), stream_(stream) {}
  Status Run(const ProductOperands& o) override {
    const auto operand = [&](const std::byte* x, int64_t rows, bool k_contiguous) {
      const bool whole = (k_contiguous ? shape_.k : rows) % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
      return Operand{reinterpret_cast<const bf16*>(x), rows, shape_.k, k_contiguous, whole};
    };
    const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kSide - 1) / kSide); };
    return TEMPER_LAUNCH((MatrixTileProduct<U, Out>), (gpuDim3{tiles(shape_.n), tiles(shape_.m)}),
                         unsigned{kBlockThreads}, stream_, operand(o.a, shape_.m, shape_.a_k_contiguous),
                         operand(o.b, shape_.n, shape_.b_k_contiguous), static_cast<float>(shape_.scale),
                         reinterpret_cast<const bf16*>(o.bias), reinterpret_cast<const Out*>(o.acc),
                         reinterpret_cast<Out*>(o.out));
  }

 private:
  const ProductShape shape_;
  const gpuStream_t stream_;
};

}  // namespace

std::unique_ptr<MatrixProduct> MakeMatrixTileProduct(const ProductShape& shape, gpuStream_t stream) {
  if (shape.dtype != DType::kBF16 || shape.m > kMostTilesAcross * kSide) return nullptr;
  return WithMatrixUnit(stream, [&]<class U>() {
    return DispatchFloat(shape.out_dtype, [&]<class Out>() -> std::unique_ptr<MatrixProduct> {
      return std::make_unique<MatrixTileProductKernel<U, Out>>(shape, stream);
    });
  });
}

}  // namespace temper::gpu
