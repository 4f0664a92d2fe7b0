// Matrix units that a warp uses together: ldmatrix, mma (PTX ISA, "Warp Level Matrix Instructions"). Where
// elements lie is written from the figures there: with group = lane / 4 and k = lane % 4,
//   A [16, 16]  register r, half h: row group + 8 (r % 2), column 2 k + h + 8 (r / 2)
//   B [16, 8]   register r, half h: row 2 k + h + 8 r, column group
//   C [16, 8]   register r: row group + 8 (r / 2), column 2 k + r % 2
#include <cstring>

#include "ptx_block.h"
#include "ptx_decoding.h"
#include "ptx_floating_point.h"
#include "ptx_lanes.h"
#include "ptx_memory.h"

namespace temper::ptx {
namespace {

float Half(uint32_t word, int half) {
  return FromBFloat(static_cast<uint16_t>(word >> 16 * half));
}

// many: D (4), A (4), B (2), C (4). Eight products at a time are added up exactly, then truncated, as has been observed
// on GPUs (the ISA leaves it open).
void MultiplyAdd(Warp& warp, const Instruction& i, Mask) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, k = lane % 4;
    for (int r = 0; r < 4; ++r) {
      const uint32_t word = warp.In<uint32_t>(i.many[static_cast<size_t>(4 + r)])[lane];
      for (int h = 0; h < 2; ++h) a[group + 8 * (r % 2)][2 * k + h + 8 * (r / 2)] = Half(word, h);
      c[group + 8 * (r / 2)][2 * k + r % 2] = warp.In<float>(i.many[static_cast<size_t>(10 + r)])[lane];
    }
    for (int r = 0; r < 2; ++r) {
      const uint32_t word = warp.In<uint32_t>(i.many[static_cast<size_t>(8 + r)])[lane];
      for (int h = 0; h < 2; ++h) b[2 * k + h + 8 * r][group] = Half(word, h);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int half = 0; half < 16; half += 8) {
      double sum[8] = {};  // side by side: the compiler makes vectors of them
      for (int k = half; k < half + 8; ++k) {
        for (int column = 0; column < 8; ++column) sum[column] += static_cast<double>(a[row][k] * b[k][column]);
      }
      for (int column = 0; column < 8; ++column) {
        c[row][column] = CutOff(static_cast<double>(c[row][column]) + sum[column]);
      }
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < 4; ++r) {
      warp.Out<float>(i.many[static_cast<size_t>(r)])[lane] = c[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2];
    }
  }
}

// number: how many matrices. Lanes 8 m ... 8 m + 7 say where the rows of matrix m begin, 16 bytes each.
template <bool kTransposed>
void LoadMatrices(Warp& warp, const Instruction& i, Mask) {
  uint64_t addresses[kLanes];
  std::byte* at[kLanes];
  Addresses(warp, i.a, i.number, addresses);
  const auto matrices = static_cast<int>(i.many.size());
  const Mask named = matrices == 4 ? kAllLanes : (Mask{1} << 8 * matrices) - 1;
  if (!Locate(warp, Space::kShared, addresses, named, 16, false, at)) return;
  for (int m = 0; m < matrices; ++m) {
    auto* d = warp.Out<uint32_t>(i.many[static_cast<size_t>(m)]);
    for (int lane = 0; lane < kLanes; ++lane) {
      uint16_t pair[2];
      for (int h = 0; h < 2; ++h) {
        const int row = kTransposed ? 2 * (lane % 4) + h : lane / 4,
                  column = kTransposed ? lane / 4 : 2 * (lane % 4) + h;
        std::memcpy(&pair[h], at[8 * m + row] + 2 * column, 2);
      }
      d[lane] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
  }
}

}  // namespace

bool DecodeMatrixUnits(Decoding& d) {
  const Type word = {Kind::kBits, 4};
  if (d.name() == "mma") {
    d.out.flow = Flow::kTogether;
    d.Require(d.Take("sync") && d.Take("aligned") && d.Take("m16n8k16") && d.Take("row") && d.Take("col"),
              "only m16n8k16.row.col is known");
    const Type to = d.TakeType(), left = d.TakeType(), right = d.TakeType(), sums = d.TakeType();
    const Type f32 = {Kind::kFloat, 4}, bf16 = {Kind::kBFloat, 2};
    d.Require(to == f32 && left == bf16 && right == bf16 && sums == f32, "only f32.bf16.bf16.f32 is known");
    d.Elements(0, f32, true);
    d.Elements(1, word, false);
    d.Elements(2, word, false);
    d.Elements(3, f32, false);
    d.Require(d.elements() == 14, "another number of registers");
    d.out.run = MultiplyAdd;
    return true;
  }
  if (d.name() != "ldmatrix") return false;
  d.out.flow = Flow::kTogether;
  d.Require(d.Take("sync") && d.Take("aligned") && d.Take("m8n8"), "only m8n8 is known");
  const std::string_view matrices = d.TakeOneOf({"x1", "x2", "x4"});
  const bool transposed = d.Take("trans");
  d.Require(d.Take("shared") || d.Take("shared::cta"), "only of shared memory");
  d.Require(d.TakeType() == Type{Kind::kBits, 2}, "only of b16");
  d.Address(1, d.out.a);
  d.Elements(0, word, true);
  d.Require(d.elements() == (matrices == "x1" ? 1 : matrices == "x2" ? 2 : 4), "another number of registers");
  d.out.run = transposed ? &LoadMatrices<true> : &LoadMatrices<false>;
  return true;
}

}  // namespace temper::ptx
