// Products of 16 terms by a warp's matrix units, for kernels that ask no vendor: C [kRows, kColumns] += A [kRows, 16] B
// [16, kColumns], f32 += bf16 bf16. Mma is NVIDIA's (matrix_unit.h), Mfma AMD's (mfma.h); WithMatrixUnit picks one.
// Both have
//
//   kLanes, kRows, kColumns    of a warp, of C
//   A, B, C                    what a lane holds: words of two bf16; C::x[i], kSums f32, of which x[i] stands in the
//                              lane's HeldRow(i)-th row, that is Row(lane, HeldRow(i)), and in Column(lane, i), which
//                              is Column(0, i) + Column(lane, 0); kHeldRows of C's rows have elements in a lane
//   ReduceRow<Combine>(x)      over the lanes that share rows
//   AsOperand(c, part)         the 16 columns from 16 part on of sums c [kRows, kSpan], as A
//   OperandRow, OperandTerm    (lane, i): where memory holds words i .. i + kOperandWords of A
//
// and tiles of kE elements a row in shared memory, bf16 as they came:
//
//   kStride<kE>, At<kE>(row, e)  elements of a row; where e is. Eight from a multiple of 8 on lie side by side, and
//   rows
//                                that differ by a multiple of 8 alike
//   RowsAsRows                   kRows rows are A's
//   RowsAsColumns                kSpan rows are the columns of kSpan / kColumns B
//   RowsAsTerms                  16 rows are the terms of kBatch<kE> B, whose columns are elements
//   Element<kE>(lane, n, i)      which element of a row x[i] of the n-th such product is; StoreRow stores them, LoadRow
//                                brings f32 back
//   kCopiesBeside                copies go to shared memory on their own; else a lane has them in registers (Staged)
//                                until FinishCopy
//
// The order of terms is free, if both operands have the same: RowsAsRows and RowsAsColumns have memory's, as
// OperandTerm; RowsAsTerms has that of AsOperand.
#pragma once

#include "backend/gpu/launch.h"
#include "backend/gpu/units/matrix_unit.h"
#include "backend/gpu/units/mfma.h"
#include "backend/gpu/units/shared_words.h"

namespace temper::gpu {

// row[e ..] = x factor, + before[e ..] where there is one. REQUIRES: as Store.
template <int kCount, class R>
__device__ __forceinline__ void StoreSums(const float (&x)[kCount], float factor, const float* before, int e, R* row) {
  float y[kCount];
  if (before == nullptr) {
    TEMPER_UNROLL
    for (int i = 0; i < kCount; ++i) y[i] = x[i] * factor;
  } else {
    Load(before + e, y);
    TEMPER_UNROLL
    for (int i = 0; i < kCount; ++i) y[i] = Fma(x[i], factor, y[i]);
  }
  Store(row + e, y);
}

#if TEMPER_MMA

// Rows are padded by 16 bytes: the eight rows of a matrix that ldmatrix reads lie in different banks.
struct Mma {
  using A = FragmentA;
  using B = FragmentB;
  using C = FragmentC;
  static constexpr int kLanes = 32, kRows = 16, kColumns = 8, kHeldRows = 2, kSums = 4, kSpan = 16, kOperandWords = 1;
  template <int kE>
  static constexpr int kStride = kE + 8;
  template <int kE>
  static constexpr int kBatch = 2;
  static constexpr bool kCopiesBeside = true;
  struct Staged {};

  __device__ static constexpr int HeldRow(int i) { return i / 2; }
  __device__ static constexpr int Row(int lane, int held) { return lane / 4 + held * 8; }
  __device__ static constexpr int Column(int lane, int i) { return lane % 4 * 2 + i % 2; }
  __device__ static constexpr int OperandRow(int lane, int i) { return lane / 4 + i % 2 * 8; }
  __device__ static constexpr int OperandTerm(int lane, int i) { return i / 2 * 8 + lane % 4 * 2; }
  template <int kE>
  __device__ static constexpr int At(int row, int e) {
    return row * kStride<kE> + e;
  }

  __device__ __forceinline__ static void MultiplyAdd(const A& a, const B& b, C& c) { gpu::MultiplyAdd(a, b, c); }
  template <class Combine>
  __device__ __forceinline__ static float ReduceRow(float x) {
    return ReduceQuad<Combine>(x);
  }
  __device__ __forceinline__ static A AsOperand(const C* c, int) { return gpu::AsOperand(c); }
  template <int kE>
  __device__ __forceinline__ static void RowsAsColumns(Shared<Bf16Bits> tile, int from, int e, int lane, B (&b)[2]) {
    uint32_t x[4];
    LoadMatrices<false>(tile, At<kE>(from + lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8) + e, x);
    b[0] = {{x[0], x[1]}};
    b[1] = {{x[2], x[3]}};
  }
  template <int kE>
  __device__ __forceinline__ static A RowsAsRows(Shared<Bf16Bits> tile, int from, int e, int lane) {
    A a;
    LoadMatrices<false>(tile, At<kE>(from + lane % 16, lane / 16 * 8) + e, a.x);
    return a;
  }
  template <int kE>
  __device__ __forceinline__ static void RowsAsTerms(Shared<Bf16Bits> tile, int from, int first, int lane, B (&b)[2]) {
    uint32_t x[4];
    LoadMatrices<true>(tile, At<kE>(from + lane / 8 % 2 * 8 + lane % 8, lane / 16 * 8) + first * 8, x);
    b[0] = {{x[0], x[1]}};
    b[1] = {{x[2], x[3]}};
  }
  template <int kE>
  __device__ static constexpr int Element(int lane, int n, int i) {
    return n * 8 + Column(lane, i);
  }
  // row[e] = x factor, + before[e] where there is one, for the elements e of held row `held` below E. REQUIRES: E is a
  // multiple of 8.
  template <int kE, class R>
  __device__ __forceinline__ static void StoreRow(const C (&x)[kE / 8], int held, float factor, const float* before,
                                                  int64_t E, int lane, R* row) {
    TEMPER_UNROLL
    for (int n = 0; n < kE / 8; ++n) {
      const int e = Element<kE>(lane, n, 0);
      if (e >= E) continue;
      StoreSums<2>({x[n].x[held * 2], x[n].x[held * 2 + 1]}, factor, before, e, row);
    }
  }
  template <int kE>
  __device__ __forceinline__ static void LoadRow(const float* row, int held, int64_t E, int lane, C (&x)[kE / 8]) {
    TEMPER_UNROLL
    for (int n = 0; n < kE / 8; ++n) {
      const int e = Element<kE>(lane, n, 0);
      if (e >= E) continue;
      float pair[2];
      Load(row + e, pair);
      x[n].x[held * 2] = pair[0];
      x[n].x[held * 2 + 1] = pair[1];
    }
  }
  __device__ __forceinline__ static void StartCopy(const bf16* from, bool there, Shared<Bf16Bits> tile, int at,
                                                   Staged&) {
    CopyBeside(from, there, tile, at);
  }
  __device__ __forceinline__ static void CloseCopies() { gpu::CloseCopies(); }
  template <int kPending>
  __device__ __forceinline__ static void AwaitCopies() {
    gpu::AwaitCopies<kPending>();
  }
};

#endif
#if TEMPER_MFMA

// Two instructions of 8 terms make 16. Operands change places, since the instruction's sums lie along columns: so a
// lane holds one row of C, four neighbouring columns at a time, and sums are an operand as they stand.
//
// A lane reads as RowsAsColumns 8 neighbouring elements of its row (ds_read_b128), as RowsAsTerms kE / 32 neighbouring
// elements of each of 8 rows (ds_read_b64, or b32): element kE / 32 * c + n is column c of the n-th product, which
// costs nothing, since an output's columns may be anybody's. Both take 512 bytes per 16384 flops: 32 flops a byte. At
// 128 bytes a cycle shared memory feeds 4096 flops a cycle and compute unit, where matrix units do 1024 (MI250X) or
// 2048 (MI300X).
//
// Banks: 16 bytes of a row lie at those of e ^ 8 (row % 8). ds_read_b128 serves 8 lanes a cycle, of which (CK's
// documentation of CDNA3) 0-3 and 20-23 are one group, and so on: 8 rows whose numbers differ mod 8. 32 lanes of
// RowsAsTerms read one whole row. A tile takes no padding, so two of 64 rows of 128 leave room for another block.
struct Mfma {
  struct A {
    uint32_t x[4];  // of the first instruction, of the second
  };
  using B = A;
  struct C {
    float x[16];
  };
  static constexpr int kLanes = 64, kRows = 32, kColumns = 32, kHeldRows = 1, kSums = 16, kSpan = 32, kOperandWords = 4;
  template <int kE>
  static constexpr int kStride = kE;
  template <int kE>
  static constexpr int kBatch = kE / kColumns;
  static constexpr bool kCopiesBeside = false;
  struct Staged {
    uint32_t x[4];
  };

  __device__ static constexpr int HeldRow(int) { return 0; }
  __device__ static constexpr int Row(int lane, int) { return lane % 32; }
  __device__ static constexpr int Column(int lane, int i) { return i / 4 * 8 + lane / 32 * 4 + i % 4; }
  __device__ static constexpr int OperandRow(int lane, int) { return lane % 32; }
  __device__ static constexpr int OperandTerm(int lane, int) { return lane / 32 * 8; }
  template <int kE>
  __device__ static constexpr int At(int row, int e) {
    return row * kE + (e ^ row % 8 * 8);
  }

  __device__ __forceinline__ static void MultiplyAdd(const A& a, const B& b, C& c) {
    Mfma32x32x8({b.x[0], b.x[1]}, {a.x[0], a.x[1]}, c.x);
    Mfma32x32x8({b.x[2], b.x[3]}, {a.x[2], a.x[3]}, c.x);
  }
  template <class Combine>
  __device__ __forceinline__ static float ReduceRow(float x) {
    return Combine()(x, ShuffleXor(x, 32));
  }
  __device__ __forceinline__ static A AsOperand(const C* c, int part) {
    const float* const x = c->x + part * 8;
    return {{PackBf16(x[0], x[1]), PackBf16(x[2], x[3]), PackBf16(x[4], x[5]), PackBf16(x[6], x[7])}};
  }
  template <int kE>
  __device__ __forceinline__ static void RowsAsColumns(Shared<Bf16Bits> tile, int from, int e, int lane, B (&b)[1]) {
    ReadWords(tile, from * kE + At<kE>(lane % 32, e + lane / 32 * 8), b[0].x);
  }
  template <int kE>
  __device__ __forceinline__ static A RowsAsRows(Shared<Bf16Bits> tile, int from, int e, int lane) {
    B b[1];
    RowsAsColumns<kE>(tile, from, e, lane, b);
    return b[0];
  }
  template <int kE>
  __device__ __forceinline__ static void RowsAsTerms(Shared<Bf16Bits> tile, int from, int, int lane,
                                                     B (&b)[kBatch<kE>]) {
    TEMPER_UNROLL
    for (int half = 0; half < 2; ++half) {  // of the terms: Column(lane, 0 .. 3) and (4 .. 7)
      uint32_t x[4][kBatch<kE> / 2];
      TEMPER_UNROLL
      for (int i = 0; i < 4; ++i) {
        ReadWords(tile, (from + half * 8) * kE + At<kE>(Column(lane, i), lane % 32 * kBatch<kE>), x[i]);
      }
      TEMPER_UNROLL
      for (int n = 0; n < kBatch<kE>; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < 2; ++i) {
          const uint32_t low = x[2 * i][n / 2], high = x[2 * i + 1][n / 2];
          b[n].x[half * 2 + i] = n % 2 == 0 ? LowerHalves(low, high) : UpperHalves(low, high);
        }
      }
    }
  }
  template <int kE>
  __device__ static constexpr int Element(int lane, int n, int i) {
    return Column(lane, i) * kBatch<kE> + n;
  }
  template <int kE, class R>
  __device__ __forceinline__ static void StoreRow(const C (&x)[kBatch<kE>], int, float factor, const float* before,
                                                  int64_t E, int lane, R* row) {
    TEMPER_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const int e = Element<kE>(lane, 0, i);
      if (e >= E) continue;
      float sums[kBatch<kE>];
      TEMPER_UNROLL
      for (int n = 0; n < kBatch<kE>; ++n) sums[n] = x[n].x[i];
      StoreSums(sums, factor, before, e, row);
    }
  }
  template <int kE>
  __device__ __forceinline__ static void LoadRow(const float* row, int, int64_t E, int lane, C (&x)[kBatch<kE>]) {
    TEMPER_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const int e = Element<kE>(lane, 0, i);
      if (e >= E) continue;
      float sums[kBatch<kE>];
      Load(row + e, sums);
      TEMPER_UNROLL
      for (int n = 0; n < kBatch<kE>; ++n) x[n].x[i] = sums[n];
    }
  }
  // Loads whether it is there or not: the compiler counts what is under way only where nothing depends on a condition.
  __device__ __forceinline__ static void StartCopy(const bf16* from, bool, Shared<Bf16Bits>, int, Staged& staged) {
    const auto pack = *reinterpret_cast<const Pack<uint32_t, 4>*>(from);
    TEMPER_UNROLL
    for (int i = 0; i < 4; ++i) staged.x[i] = pack.x[i];
  }
  __device__ static void CloseCopies() {}
  __device__ __forceinline__ static void FinishCopy(const Staged& staged, bool there, Shared<Bf16Bits> tile, int at) {
    uint32_t x[4];
    TEMPER_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = there ? staged.x[i] : 0;
    WriteWords(tile, at, x);
  }
};

#endif

// f.template operator()<Unit>() for the matrix units of the stream's GPU: a unique_ptr, nullptr where there are none.
template <class F>
auto WithMatrixUnit(gpuStream_t stream, const F& f) {
#if TEMPER_MMA
  (void)stream;  // all of them have some
  return f.template operator()<Mma>();
#else
  return HasMfma(stream) ? f.template operator()<Mfma>() : nullptr;
#endif
}

}  // namespace temper::gpu
