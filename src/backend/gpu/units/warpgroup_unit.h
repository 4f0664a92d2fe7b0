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

#if TEMPER_WGMMA
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

#if defined(TEMPER_GPU_EMULATED)

// Element [row, e] of an operand, counted from where its descriptor begins: as the units find it.
inline float Described(Shared<Bf16Bits> window, uint64_t descriptor, int row, int e) {
  const auto field = [&](int bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3FFF) << 4; };
  if (descriptor >> 62 != 1) simt::Fail("a tile without the swizzle of 128 bytes");
  const auto r = static_cast<uint32_t>(row), c = static_cast<uint32_t>(e);
  const uint32_t byte = field(0) + c / kPanel * field(16) + r / 8 * field(32) + r % 8 * 128 + c % kPanel * 2;
  return ToFloat(bf16{window.ForProducts((byte ^ (byte >> 7 & 7) << 4) / 2)});
}

// What sums are while they are under way: a NaN that no arithmetic makes.
inline constexpr uint32_t kUnderWay = 0x7FC0DEAD;

// A product that is done when it is waited for. left(half, k): of this lane's row (0) and the eighth behind it (1);
// right(column, k).
template <size_t kTiles, class Left, class Right>
void DeferProduct(bool add, FragmentC (&sums)[kTiles], const Left& left, const Right& right) {
  simt::MeetWarpgroup(__LINE__);
  struct Operands {
    float left[2][16], right[2 * kTiles][16];  // rows and columns of this lane
  };
  const auto read = [left, right, first = simt::Here().index % 4 * 2] {
    Operands x;
    for (int k = 0; k < 16; ++k) {
      for (int half = 0; half < 2; ++half) x.left[half][k] = left(half, k);
      for (int i = 0; i < 2 * static_cast<int>(kTiles); ++i) x.right[i][k] = right(i / 2 * 8 + first + i % 2, k);
    }
    return x;
  };
  read();  // what is wrong with the operands shows where the product is issued
  const bool follows = std::bit_cast<uint32_t>(sums[0].x[0]) == kUnderWay;  // a product that is under way
  std::array<FragmentC, kTiles> before;
  std::copy_n(sums, kTiles, before.begin());
  for (FragmentC& c : sums) std::fill_n(c.x, 4, std::bit_cast<float>(kUnderWay));
  simt::Defer(simt::Unit::kProducts, [=, &sums] {
    const Operands x = read();
    for (size_t tile = 0; tile < kTiles; ++tile) {
      for (size_t i = 0; i < 4; ++i) {
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += x.left[i / 2][k] * x.right[2 * tile + i % 2][k];
        sums[tile].x[i] = (!add ? 0 : follows ? sums[tile].x[i] : before[tile].x[i]) + sum;
      }
    }
  });
}

template <class Left, class Right>
void MultiplyRows(Shared<Bf16Bits> window, Left left, int row, Right right, int e, bool add,
                  FragmentC (&sums)[Right::kRows / 8]) {
  const int mine = simt::Here().index % kWarpgroup / 32 * 16 + simt::Here().index % 32 / 4;
  const uint64_t a = Describe(static_cast<uint32_t>(left.Begin(row, e)) * 2, 0),
                 b = Describe(static_cast<uint32_t>(right.Begin(0, e)) * 2, 0);
  DeferProduct(
      add, sums, [=, &window](int half, int k) { return Described(window, a, mine + half * 8, k); },
      [=, &window](int column, int k) { return Described(window, b, column, k); });
}

template <class Right>
void MultiplyWeights(Shared<Bf16Bits> window, const FragmentA& left, Right right, int row,
                     FragmentC (&sums)[Right::kE / 8]) {
  const simt::WarpWords* const words = simt::ExchangeWords({left.x[0], left.x[1], left.x[2], left.x[3]}, __LINE__);
  std::array<simt::WarpWords, 4> quad;  // the lanes that hold this lane's rows
  std::copy_n(words + simt::Here().index % 32 / 4 * 4, 4, quad.begin());
  const uint64_t b = Describe(static_cast<uint32_t>(right.Begin(row, 0)) * 2, Right::kRows * kPanel * 2);
  DeferProduct(
      true, sums,
      [=](int half, int k) {
        const uint32_t word = quad[static_cast<size_t>(k % 8 / 2)][static_cast<size_t>(half + k / 8 * 2)];
        return ToFloat(bf16{static_cast<uint16_t>(k % 2 == 0 ? word & 0xFFFF : word >> 16)});
      },
      [=, &window](int column, int k) { return Described(window, b, k, column); });
}

template <class... Registers>
void FenceRegisters(Registers&...) {
  simt::FenceRegisters();
}
void FenceTiles() {
  simt::FenceWrites();
}
void CloseProducts() {
  simt::Close(simt::Unit::kProducts);
}
template <int kPending, class... Sums>
void AwaitProducts(Sums&...) {
  simt::Await(simt::Unit::kProducts, kPending);
}

#else

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

#endif

}  // namespace temper::gpu
#endif  // TEMPER_WGMMA
