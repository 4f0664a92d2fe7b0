// Matrix units of NVIDIA's warps, from Ampere on: products of 16 x 8 x 16 with bf16 operands and f32 sums (PTX
// mma.m16n8k16), how operands come into registers (ldmatrix), and copies into shared memory that run beside the
// arithmetic (cp.async). A warp works on a product together: every lane holds some elements of it.
//
// Of lane l, with g = l / 4 and t = l % 4:
//   A [16, 16]  x[0]: row g, columns 2t, 2t+1   x[1]: row g+8   x[2]: row g, columns 2t+8, 2t+9   x[3]: row g+8
//   B [16, 8]   x[0]: rows 2t, 2t+1 of column g   x[1]: rows 2t+8, 2t+9
//   C [16, 8]   x[0], x[1]: row g, columns 2t, 2t+1   x[2], x[3]: row g+8
// Two bf16 share a word, the lower column (row, of B) in its lower half.
//
// AMD's matrix units have other shapes and other lanes (mfma.h); warp_matrix.h has one name for both.
#pragma once

#include <cstdint>

#include "backend/gpu/gpu_api.h"
#include "tensor/dtype.h"

namespace temper::gpu {

// Elements of tiles in shared memory: the bits of a bf16, which unlike bf16 need no constructor.
using Bf16Bits = uint16_t;

#if TEMPER_MMA

struct FragmentA {
  uint32_t x[4];
};
struct FragmentB {
  uint32_t x[2];
};
struct FragmentC {
  float x[4];
};

// c += a b. The order of the 16 terms is the hardware's, always the same.
__device__ __forceinline__ void MultiplyAdd(const FragmentA& a, const FragmentB& b, FragmentC& c);

// Sums [16, 16] (two C side by side) as an operand A.
__device__ __forceinline__ FragmentA AsOperand(const FragmentC* c) {
  return {{PackBf16(c[0].x[0], c[0].x[1]), PackBf16(c[0].x[2], c[0].x[3]), PackBf16(c[1].x[0], c[1].x[1]),
           PackBf16(c[1].x[2], c[1].x[3])}};
}

// Over the four lanes that share rows of C.
template <class Combine>
__device__ __forceinline__ float ReduceQuad(float x) {
  x = Combine()(x, ShuffleXor(x, 1));
  return Combine()(x, ShuffleXor(x, 2));
}

// Four 8 x 8 matrices out of a tile, one word each per lane: `at` of lanes 8i .. 8i+7 are where the rows of matrix i
// begin. x[i] of lane l: row l / 4, elements 2 (l % 4) and the next; kTransposed: elements l / 4 of rows 2 (l % 4) and
// the next. REQUIRES: `at` is a multiple of 8.
template <bool kTransposed>
__device__ __forceinline__ void LoadMatrices(Shared<Bf16Bits> tile, int at, uint32_t (&x)[4]);

// 8 elements from global memory, zeros where not `there`; in shared memory once AwaitCopies and a barrier have passed.
// REQUIRES: `from` is aligned to 16 bytes, `at` is a multiple of 8.
__device__ __forceinline__ void CopyBeside(const bf16* from, bool there, Shared<Bf16Bits> tile, int at);
// Ends a group of copies.
__device__ __forceinline__ void CloseCopies();
// Returns when this thread's copies are done but for the last kPending groups.
template <int kPending>
__device__ __forceinline__ void AwaitCopies();

__device__ void MultiplyAdd(const FragmentA& a, const FragmentB& b, FragmentC& c) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
}

template <bool kTransposed>
__device__ void LoadMatrices(Shared<Bf16Bits> tile, int at, uint32_t (&x)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(tile + at));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
  }
}

__device__ void CopyBeside(const bf16* from, bool there, Shared<Bf16Bits> tile, int at) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(tile + at));
  const int bytes = there ? 16 : 0;  // of the source; the rest becomes zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(address), "l"(from), "r"(bytes) : "memory");
}
__device__ void CloseCopies() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}
template <int kPending>
__device__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

#endif  // TEMPER_MMA

}  // namespace temper::gpu
