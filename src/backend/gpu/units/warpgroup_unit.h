// Matrix units of Hopper's warpgroups (wgmma, PTX ISA 9.7.15): four warps in a row multiply together, out of shared
// memory, while they go on with something else. Products of 64 rows; with g = lane / 4 and t = lane % 4, warp w of the
// group holds rows 16w + g and 16w + g + 8 of left operands and of sums, as in matrix_unit.h: FragmentA, FragmentC.
//
// What the units read of shared memory is made of rows of 64 bf16 = 128 bytes: chunk c of 16 bytes of row r lies at
// chunk c ^ (r % 8), so that eight rows of a column lie in different banks. Tiles wider than 64 elements are panels of
// 64, one behind the other. Tiles begin at multiples of 1024 bytes, or the pattern would not begin with them.
//
// Descriptors and the swizzle are those that Triton compiles tl.dot to: warpgroup_unit_test.cc.
#pragma once

#include "backend/gpu/units/matrix_unit.h"

namespace temper::gpu {

inline constexpr int kWarpgroup = 128;      // threads
inline constexpr int kWarpgroupRows = 64;   // of a product
inline constexpr int kPanel = 64;           // elements of a row of a panel
inline constexpr int kSwizzleBytes = 1024;  // eight rows

// A tile of kRows x kE in shared memory, from element `at` of a kernel's window on, which the units want to be at a
// whole kSwizzleBytes: windows begin there, and tiles are multiples of it.
template <int kTileRows, int kColumns>
struct SwizzledTile {
  static_assert(kTileRows % 8 == 0 && kColumns % kPanel == 0);
  static constexpr int kRows = kTileRows, kE = kColumns, kElements = kRows * kE;
  int at;

  __device__ int Place(int row, int e) const {
    return at + e / kPanel * kRows * kPanel + row * kPanel + (((e / 8 % 8) ^ (row % 8)) * 8) + e % 8;
  }
  // Where the units begin to read: of columns `e` (a multiple of 16) on, from row `row` (of 8) on.
  __device__ int Begin(int row, int e) const { return at + e / kPanel * kRows * kPanel + row * kPanel + e % kPanel; }
};

// What the units are told of an operand: 14 bits each of where it begins, of the stride between panels (which only an
// operand by columns has) and of that between eight rows and the next, in units of 16 bytes; the swizzle of 128 bytes.
__device__ __forceinline__ uint64_t Describe(uint32_t address, int panel_bytes) {
  return uint64_t{address >> 4 & 0x3FFF} | uint64_t{static_cast<uint32_t>(panel_bytes) >> 4} << 16 |
         uint64_t{kSwizzleBytes >> 4} << 32 | uint64_t{1} << 62;
}

#if TEMPER_WGMMA

// Ends the kernel where the window does not begin as the units want it: they would multiply other elements, and nothing
// would tell. It is declared aligned, but lies behind the kernel's other shared memory, where the driver puts it.
__device__ __forceinline__ void CheckAlignment(Shared<Bf16Bits> window) {
  uint32_t at;  // of which the compiler does not know that it is declared aligned
  asm volatile("mov.u32 %0, %1;" : "=r"(at) : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(window))));
  if (at % kSwizzleBytes != 0) __trap();
}

// sums [64, rows of right] = (or +=, `add`) the 64 rows of `left` from `row` on times all of `right`, transposed: of
// both the 16 columns from `e` on. The sums are there once AwaitProducts says so; until then neither they nor the tiles
// may be touched.
template <class Left, class Right>
__device__ __forceinline__ void MultiplyRows(Shared<Bf16Bits> window, Left left, int row, Right right, int e, bool add,
                                             FragmentC (&sums)[Right::kRows / 8]);

// sums [64, columns of right] += left [64, 16] times the 16 rows of `right` from `row` on. `left` may not be touched
// until then, either.
template <class Right>
__device__ __forceinline__ void MultiplyWeights(Shared<Bf16Bits> window, const FragmentA& left, Right right, int row,
                                                FragmentC (&sums)[Right::kE / 8]);

// Between what wrote `registers` (sums, left operands: all that products are about to read) and these products.
template <class... Registers>
__device__ __forceinline__ void FenceRegisters(Registers&... registers);
// Between this thread's writes of tiles (copies that it has awaited, too) and the barrier before products.
__device__ __forceinline__ void FenceTiles();
// Ends a group of products.
__device__ __forceinline__ void CloseProducts();
// Returns when this warp's products are done but for the last kPending groups; `sums` are those that are there now.
template <int kPending, class... Sums>
__device__ __forceinline__ void AwaitProducts(Sums&... sums);

// Code for other GPUs is compiled, too, and never launched.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TEMPER_HOPPER(...) asm volatile(__VA_ARGS__)
#else
#define TEMPER_HOPPER(...) __trap()
#endif

__device__ __forceinline__ uint64_t Describe(Shared<Bf16Bits> window, int at, int panel_bytes) {
  return Describe(static_cast<uint32_t>(__cvta_generic_to_shared(window + at)), panel_bytes);
}

// Operands 0 to 31 or 63 of the instruction: sums.
#define TEMPER_4(c) "+f"((c).x[0]), "+f"((c).x[1]), "+f"((c).x[2]), "+f"((c).x[3])
#define TEMPER_16(c, i) TEMPER_4((c)[i]), TEMPER_4((c)[(i) + 1]), TEMPER_4((c)[(i) + 2]), TEMPER_4((c)[(i) + 3])
#define TEMPER_32(c, i) TEMPER_16(c, i), TEMPER_16(c, (i) + 4)
#define TEMPER_NAMES_32                                                                                                \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31"
#define TEMPER_NAMES_64                                                                                               \
  TEMPER_NAMES_32                                                                                                     \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59," \
  "%60,%61,%62,%63"

template <class Left, class Right>
__device__ void MultiplyRows(Shared<Bf16Bits> window, Left left, int row, Right right, int e, bool add,
                             FragmentC (&sums)[Right::kRows / 8]) {
  static_assert(Right::kRows == 64 || Right::kRows == 128);
  [[maybe_unused]] const uint64_t a = Describe(window, left.Begin(row, e), 0),
                                  b = Describe(window, right.Begin(0, e), 0);
  [[maybe_unused]] const int keep = add;
  if constexpr (Right::kRows == 64) {
    TEMPER_HOPPER(
        "{ .reg .pred add; setp.ne.b32 add, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TEMPER_NAMES_32 "}, %32, %33, add, 1, 1, 0, 0; }"
        : TEMPER_32(sums, 0)
        : "l"(a), "l"(b), "r"(keep));
  } else {
    TEMPER_HOPPER(
        "{ .reg .pred add; setp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TEMPER_NAMES_64 "}, %64, %65, add, 1, 1, 0, 0; }"
        : TEMPER_32(sums, 0), TEMPER_32(sums, 8)
        : "l"(a), "l"(b), "r"(keep));
  }
}

template <class Right>
__device__ void MultiplyWeights(Shared<Bf16Bits> window, const FragmentA& left, Right right, int row,
                                FragmentC (&sums)[Right::kE / 8]) {
  static_assert(Right::kE == 64 || Right::kE == 128);
  [[maybe_unused]] const uint64_t b = Describe(window, right.Begin(row, 0), Right::kRows * kPanel * 2);
  if constexpr (Right::kE == 64) {
    TEMPER_HOPPER("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TEMPER_NAMES_32
                  "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                  : TEMPER_32(sums, 0)
                  : "r"(left.x[0]), "r"(left.x[1]), "r"(left.x[2]), "r"(left.x[3]), "l"(b));
  } else {
    TEMPER_HOPPER("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TEMPER_NAMES_64
                  "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                  : TEMPER_32(sums, 0), TEMPER_32(sums, 8)
                  : "r"(left.x[0]), "r"(left.x[1]), "r"(left.x[2]), "r"(left.x[3]), "l"(b));
  }
}

// The compiler may move arithmetic across instructions that do not name its registers: these do, and cost nothing.
template <int kCount>
__device__ __forceinline__ void Name(FragmentC (&x)[kCount]) {
  TEMPER_UNROLL
  for (int i = 0; i < kCount; ++i) asm volatile("" : TEMPER_4(x[i]) : : "memory");
}
template <int kCount>
__device__ __forceinline__ void Name(FragmentA (&x)[kCount]) {
  TEMPER_UNROLL
  for (int i = 0; i < kCount; ++i) {
    asm volatile("" : "+r"(x[i].x[0]), "+r"(x[i].x[1]), "+r"(x[i].x[2]), "+r"(x[i].x[3]) : : "memory");
  }
}

template <class... Registers>
__device__ void FenceRegisters(Registers&... registers) {
  (Name(registers), ...);
  TEMPER_HOPPER("wgmma.fence.sync.aligned;" : : : "memory");
}
__device__ void FenceTiles() {
  TEMPER_HOPPER("fence.proxy.async.shared::cta;" : : : "memory");
}
__device__ void CloseProducts() {
  TEMPER_HOPPER("wgmma.commit_group.sync.aligned;" : : : "memory");
}
template <int kPending, class... Sums>
__device__ void AwaitProducts(Sums&... sums) {
  TEMPER_HOPPER("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
  (Name(sums), ...);
}

#undef TEMPER_HOPPER
#undef TEMPER_4
#undef TEMPER_16
#undef TEMPER_32
#undef TEMPER_NAMES_32
#undef TEMPER_NAMES_64

#endif  // TEMPER_WGMMA

}  // namespace temper::gpu
