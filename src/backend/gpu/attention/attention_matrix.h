// Shared by the kernels of attention on matrix units: bf16, heads of up to 128 elements. A block has four warps, each
// with 16 rows (queries or keys; 32 on AMD) of one head in registers. The tiles of 64 rows that they are multiplied
// with are in shared memory, bf16 as in memory. Scores and sums are f32; p and d_s are rounded to bf16 before their
// products, as on the CPU.
//
// Per 16 x 16 of a tile that is read from shared memory a warp of NVIDIA's does 2 x 4096 flops: 2048 flops per cycle
// and multiprocessor at 128 bytes per cycle, which is less than Hopper's matrix units do, and more than half of
// Ampere's. One of AMD's does twice as many: 4096 per cycle and compute unit, twice what MI300X's matrix units do.
#pragma once

#include "backend/gpu/attention/attention_mask.h"
#include "backend/gpu/attention/attention_softmax.h"

namespace temper::gpu {

// Made where matrix units can do it; nullptr elsewhere. R is bf16 with Causal, f32 with Dealt. `fault`: as in
// attention.cu; the kernel takes it over. `acc`: continues from the results of the steps before.
template <class R, class Sees>
std::unique_ptr<Kernel> MakeMatrixAttention(const Heads& heads, const Sees& sees, bool acc, const Context& context,
                                            Faults::Word* fault);
template <class R, class Sees>
std::unique_ptr<Kernel> MakeMatrixAttentionBackward(const Heads& heads, const Sees& sees, bool acc,
                                                    const Context& context);

inline constexpr int kMatrixWarps = 4;
inline constexpr int kTileRows = 64;

template <class U, int kWidth>
struct MatrixTile {
  using Unit = U;
  static constexpr int kE = kWidth;                           // elements of a head, zeros beyond those it has
  static constexpr int kThreads = kMatrixWarps * U::kLanes;   // of a block
  static constexpr int kBlockRows = kMatrixWarps * U::kRows;  // in registers
  static constexpr int kSteps = kE / 16;                      // of a product's terms
  static constexpr int kColumnTiles = kE / U::kColumns;       // of an output
  static constexpr int kScores = U::kSpan / U::kColumns;      // sums of kRows x kSpan
  static constexpr int kElements = kTileRows * U::template kStride<kE>;
  static constexpr int kChunks = kE / 8;                  // of 16 bytes, of a row
  static constexpr int kRowsAtOnce = kThreads / kChunks;  // by a block that copies
  static constexpr int kCopies = kTileRows / kRowsAtOnce;
  static_assert(kRowsAtOnce % 8 == 0);
};

// Products read whole chunks of 16 bytes; the largest score is found before scores are scaled, and scaling must keep
// their order. Capped scores are left to the other kernels.
inline bool FitsMatrixTiles(const Heads& heads) {
  return heads.E <= 128 && heads.E % 8 == 0 && heads.scale > 0 && heads.cap == 0;
}
inline unsigned BlocksOf(int64_t rows, int per_block) {
  return static_cast<unsigned>((rows + per_block - 1) / per_block);
}

// A kernel for `heads` and the stream's GPU: make.template operator()<M>(), nullptr where there is none.
template <class Make>
std::unique_ptr<Kernel> WithMatrixTile(const Heads& heads, gpuStream_t stream, const Make& make) {
  if (!FitsMatrixTiles(heads)) return nullptr;
  return WithMatrixUnit(stream, [&]<class U>() {
    return heads.E <= 64 ? make.template operator()<MatrixTile<U, 64>>()
                         : make.template operator()<MatrixTile<U, 128>>();
  });
}

// A block's copies of rows [first, first + kTileRows) of head h of x_T(H*E) to a tile, zeros from `end` on.
template <class M>
class TileCopy {
 public:
  // A group of copies, on their own (the tile is written from now on) or into registers.
  __device__ __forceinline__ void Start(const bf16* x, int64_t first, int64_t end, int64_t heads, int64_t h, int64_t E,
                                        Shared<Bf16Bits> tile) {
    const int row = static_cast<int>(threadIdx.x) / M::kChunks, e = static_cast<int>(threadIdx.x) % M::kChunks * 8;
    rows_ = e >= E ? 0 : (end - first < kTileRows ? static_cast<int>(end - first) : kTileRows) - row;
    const bf16* from = x + ((first + row) * heads + h) * E + e;
    TEMPER_UNROLL
    for (int n = 0; n < M::kCopies; ++n) {
      Unit::StartCopy(There(n) ? from : x, There(n), tile, Place(n), staged_[n]);
      from += M::kRowsAtOnce * heads * E;
    }
    Unit::CloseCopies();
  }
  // This thread may read the tile after a barrier. REQUIRES: kPending groups were closed after this one.
  template <int kPending>
  __device__ __forceinline__ void Finish(Shared<Bf16Bits> tile) {
    if constexpr (Unit::kCopiesBeside) {
      Unit::template AwaitCopies<kPending>();
    } else {
      TEMPER_UNROLL
      for (int n = 0; n < M::kCopies; ++n) Unit::FinishCopy(staged_[n], There(n), tile, Place(n));
    }
  }

 private:
  using Unit = typename M::Unit;
  // This thread's n-th 16 bytes: whether there are any, and where they go. Rows 8 apart are laid out alike.
  __device__ bool There(int n) const { return n * M::kRowsAtOnce < rows_; }
  __device__ static int Place(int n) {
    const int thread = static_cast<int>(threadIdx.x);
    return Unit::template At<M::kE>(thread / M::kChunks, thread % M::kChunks * 8) +
           n * M::kRowsAtOnce * Unit::template kStride<M::kE>;
  }
  typename Unit::Staged staged_[M::kCopies];
  int rows_;  // from this thread's first on
};

// The kRows rows from `begin` on of head h of x_T(H*E) as operands, this lane's words of each step; zeros from `end`
// on.
template <class M>
__device__ __forceinline__ void LoadRows(const bf16* x, int64_t begin, int64_t end, int64_t heads, int64_t h, int64_t E,
                                         int lane, typename M::Unit::A (&rows)[M::kSteps]) {
  using U = typename M::Unit;
  using Words = Pack<uint32_t, U::kOperandWords>;
  TEMPER_UNROLL
  for (int step = 0; step < M::kSteps; ++step) {
    TEMPER_UNROLL
    for (int i = 0; i < 4; i += U::kOperandWords) {
      const int64_t r = begin + U::OperandRow(lane, i), e = step * 16 + U::OperandTerm(lane, i);
      const auto words = r < end && e < E ? *reinterpret_cast<const Words*>(x + (r * heads + h) * E + e) : Words{};
      TEMPER_UNROLL
      for (int j = 0; j < U::kOperandWords; ++j) rows[step].x[i + j] = words.x[j];
    }
  }
}

// The rows from `begin` on, before `end`, of head h of y_T(H*E): y = factor sums, + before if that is set.
template <class U, class R, int kTiles>
__device__ __forceinline__ void StoreRows(const typename U::C (&sums)[kTiles], float factor, const float* before,
                                          int begin, int end, int64_t heads, int64_t h, int64_t E, int lane, R* y) {
  TEMPER_UNROLL
  for (int i = 0; i < U::kHeldRows; ++i) {
    const int t = begin + U::Row(lane, i);
    if (t >= end) continue;
    const int64_t at = (t * heads + h) * E;
    U::template StoreRow<kTiles * U::kColumns>(sums, i, factor, before == nullptr ? nullptr : before + at, E, lane,
                                               y + at);
  }
}

// c += rows times the kSpan rows of the tile from `from` on, transposed.
template <class M>
__device__ __forceinline__ void AddScores(const typename M::Unit::A (&rows)[M::kSteps], Shared<Bf16Bits> tile, int from,
                                          int lane, typename M::Unit::C* c) {
  TEMPER_UNROLL
  for (int step = 0; step < M::kSteps; ++step) {
    typename M::Unit::B b[M::kScores];
    M::Unit::template RowsAsColumns<M::kE>(tile, from, step * 16, lane, b);
    TEMPER_UNROLL
    for (int n = 0; n < M::kScores; ++n) M::Unit::MultiplyAdd(rows[step], b[n], c[n]);
  }
}

// out += weights, sums of kRows x kSpan, times the kSpan rows of the tile from `from` on.
template <class M>
__device__ __forceinline__ void AddProduct(const typename M::Unit::C* weights, Shared<Bf16Bits> tile, int from,
                                           int lane, typename M::Unit::C (&out)[M::kColumnTiles]) {
  using U = typename M::Unit;
  constexpr int kBatch = U::template kBatch<M::kE>;
  TEMPER_UNROLL
  for (int part = 0; part < U::kSpan / 16; ++part) {
    const typename U::A a = U::AsOperand(weights, part);
    TEMPER_UNROLL
    for (int first = 0; first < M::kColumnTiles; first += kBatch) {
      typename U::B b[kBatch];
      U::template RowsAsTerms<M::kE>(tile, from + part * 16, first, lane, b);
      TEMPER_UNROLL
      for (int n = 0; n < kBatch; ++n) U::MultiplyAdd(a, b[n], out[first + n]);
    }
  }
}

}  // namespace temper::gpu
