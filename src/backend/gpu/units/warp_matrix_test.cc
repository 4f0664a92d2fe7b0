// AMD's matrix units on the emulator: which lane holds what, as another compiler of kernels has it. NVIDIA's:
// tests/device/cuda/ptx_matrix_units_test.cc.
#include <gtest/gtest.h>

#include <random>

#ifdef TEMPER_GPU_EMULATED
#include "backend/gpu/units/lane_layout_for_test.h"
#include "backend/gpu/units/warp_matrix.h"

namespace temper::gpu::warp_matrix_test {
namespace {

// Written by tests/conformance/matrix_layouts.py (Triton 3.9.0) for gfx90a and gfx942.
const Layout kMfmaA = {{{0, 1}, {0, 2}}, {{1, 0}, {2, 0}, {4, 0}, {8, 0}, {16, 0}, {0, 4}}};
const Layout kMfmaB = {{{1, 0}, {2, 0}}, {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {4, 0}}};
const Layout kMfmaC = {{{1, 0}, {2, 0}, {8, 0}, {16, 0}}, {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {4, 0}}};

template <size_t kWords>
void Fill(const Matrix& x, const Layout& layout, int lane, uint32_t (&words)[kWords]) {
  for (int i = 0; i < static_cast<int>(kWords); ++i) {
    words[i] = PackBf16(At(x, layout.Of(lane, 2 * i)), At(x, layout.Of(lane, 2 * i + 1)));
  }
}

// multiply(lane's words of a, of b, elements of c) as every lane of a warp: c += a b.
template <int kA, int kB, int kC, class Multiply>
void ExpectProduct(int m, int n, int k, const Layout& a_layout, const Layout& b_layout, const Layout& c_layout,
                   int lanes, const Multiply& multiply) {
  const auto rows = static_cast<size_t>(m), columns = static_cast<size_t>(n), terms = static_cast<size_t>(k);
  const Matrix a = RandomMatrix(rows, terms, 1), b = RandomMatrix(terms, columns, 2),
               before = RandomMatrix(rows, columns, 3);
  Matrix got(rows, std::vector<float>(columns, NAN));
  const auto kernel = [&] {
    const int lane = static_cast<int>(threadIdx.x);
    uint32_t x[kA], y[kB];
    float c[kC];
    Fill(a, a_layout, lane, x);
    Fill(b, b_layout, lane, y);
    for (int i = 0; i < kC; ++i) c[i] = At(before, c_layout.Of(lane, i));
    multiply(x, y, c);
    for (int i = 0; i < kC; ++i) {
      const Place place = c_layout.Of(lane, i);
      got[static_cast<size_t>(place[0])][static_cast<size_t>(place[1])] = c[i];
    }
  };
  ASSERT_EQ(simt::Launch({.warp_size = lanes, .order = 5}, {1}, {static_cast<unsigned>(lanes)}, kernel), "");
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      float sum = before[i][j];
      for (size_t t = 0; t < terms; ++t) sum += a[i][t] * b[t][j];
      EXPECT_EQ(got[i][j], sum) << i << ", " << j;
    }
  }
}

TEST(GpuMatrixUnits, HoldWhatTritonSays) {
  ExpectProduct<2, 2, 16>(32, 32, 8, kMfmaA, kMfmaB, kMfmaC, 64,
                          [](const auto& a, const auto& b, auto& c) { Mfma32x32x8(a, b, c); });
}

// What kernels ask of either, with a tile in shared memory: its rows as columns, as terms, and sums as operands.
template <class U>
void ExpectTileProducts() {
  constexpr int kE = 128;
  using Sums = typename U::C;
  const auto span = static_cast<size_t>(U::kSpan), rows = static_cast<size_t>(U::kRows);
  const Matrix tile = RandomMatrix(span, kE, 1), operand = RandomMatrix(rows, kE, 2);
  Matrix scores(rows, std::vector<float>(span, NAN)), products(rows, std::vector<float>(kE, NAN));
  std::vector<bf16> stored(rows * kE);
  std::vector<float> added(rows * kE, 3), kept(rows * kE, NAN);
  const auto kernel = [&] {
    TEMPER_SHARED(uint16_t, shared, U::kSpan * U::template kStride<kE>);
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = lane; i < U::kSpan * kE; i += U::kLanes) {
      shared[U::template At<kE>(i / kE, i % kE)] = ToBF16(At(tile, {i / kE, i % kE})).bits;
    }
    __syncthreads();
    Sums c[U::kSpan / U::kColumns] = {};
    for (int step = 0; step < kE / 16; ++step) {
      typename U::A a;
      for (int i = 0; i < 4; ++i) {
        const int first = i / U::kOperandWords * U::kOperandWords, row = U::OperandRow(lane, first),
                  e = step * 16 + U::OperandTerm(lane, first) + (i - first) * 2;
        a.x[i] = PackBf16(At(operand, {row, e}), At(operand, {row, e + 1}));
      }
      typename U::B b[U::kSpan / U::kColumns];
      U::template RowsAsColumns<kE>(shared, 0, step * 16, lane, b);
      for (int n = 0; n < U::kSpan / U::kColumns; ++n) U::MultiplyAdd(a, b[n], c[n]);
    }
    for (int n = 0; n < U::kSpan / U::kColumns; ++n) {
      for (int i = 0; i < U::kSums; ++i) {
        scores[static_cast<size_t>(U::Row(lane, U::HeldRow(i)))]
              [static_cast<size_t>(n * U::kColumns + U::Column(lane, i))] = c[n].x[i];
        c[n].x[i] = static_cast<float>((U::Row(lane, U::HeldRow(i)) + 3 * (n * U::kColumns + U::Column(lane, i))) % 7);
      }
    }
    Sums out[kE / U::kColumns] = {};
    for (int part = 0; part < U::kSpan / 16; ++part) {
      const auto weights = U::AsOperand(c, part);
      constexpr int kBatch = U::template kBatch<kE>;
      for (int first = 0; first < kE / U::kColumns; first += kBatch) {
        typename U::B b[kBatch];
        U::template RowsAsTerms<kE>(shared, part * 16, first, lane, b);
        for (int n = 0; n < kBatch; ++n) U::MultiplyAdd(weights, b[n], out[first + n]);
      }
    }
    for (int n = 0; n < kE / U::kColumns; ++n) {
      for (int i = 0; i < U::kSums; ++i) {
        products[static_cast<size_t>(U::Row(lane, U::HeldRow(i)))]
                [static_cast<size_t>(U::template Element<kE>(lane, n, i))] = out[n].x[i];
      }
    }
    for (int held = 0; held < U::kHeldRows; ++held) {
      const int row = U::Row(lane, held) * kE;
      U::template StoreRow<kE>(out, held, 0.5f, nullptr, kE, lane, stored.data() + row);
      U::template StoreRow<kE>(out, held, 0.5f, added.data() + row, kE, lane, added.data() + row);
    }
    // All but the last eight elements of a row.
    Sums loaded[kE / U::kColumns] = {};
    for (int held = 0; held < U::kHeldRows; ++held) {
      U::template LoadRow<kE>(added.data() + U::Row(lane, held) * kE, held, kE - 8, lane, loaded);
    }
    for (int held = 0; held < U::kHeldRows; ++held) {
      U::template StoreRow<kE>(loaded, held, 1.0f, nullptr, kE, lane, kept.data() + U::Row(lane, held) * kE);
    }
  };
  ASSERT_EQ(simt::Launch({.warp_size = U::kLanes, .order = 5}, {1}, {U::kLanes}, kernel), "");
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < span; ++j) {
      float sum = 0;
      for (size_t e = 0; e < kE; ++e) sum += operand[i][e] * tile[j][e];
      EXPECT_EQ(scores[i][j], sum) << i << ", " << j;
    }
    for (size_t e = 0; e < kE; ++e) {
      float sum = 0;
      for (size_t j = 0; j < span; ++j) sum += static_cast<float>((i + 3 * j) % 7) * tile[j][e];
      EXPECT_EQ(products[i][e], sum) << i << ", " << e;
      EXPECT_EQ(ToFloat(stored[i * kE + e]), ToFloat(ToBF16(sum * 0.5f))) << i << ", " << e;
      EXPECT_EQ(added[i * kE + e], 3 + sum * 0.5f) << i << ", " << e;
      EXPECT_EQ(kept[i * kE + e], e < kE - 8 ? added[i * kE + e] : 0) << i << ", " << e;
    }
  }
}

TEST(GpuMatrixUnits, MultiplyByRowsOfATileAndByItsColumns) {
  ExpectTileProducts<Mfma>();
}

// PackBf16 as AMD's GPUs compute it.
TEST(GpuMatrixUnits, PackedNumbersAreRoundedAsTheCpuRounds) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const uint32_t bits = i < 0x20000 ? static_cast<uint32_t>(i) << 15 : random();
    const float x = std::bit_cast<float>(bits);
    const uint32_t pair = PackBf16(x, -x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(pair << 16)) && std::isnan(std::bit_cast<float>(pair & 0xFFFF0000)));
    } else {
      EXPECT_EQ(pair, uint32_t{ToBF16(x).bits} | uint32_t{ToBF16(-x).bits} << 16) << bits;
    }
  }
}

}  // namespace
}  // namespace temper::gpu::warp_matrix_test
#endif
