// ssd and its backward: the fast kernels against their twins, and documents against documents alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "graph/ops/ssd.h"
#include "op_case.h"

namespace temper::ssd_test {
namespace {

// Of tokens, groups, heads, elements of b and of a head's x; two packed rows where T is even. Of 9 heads in a group,
// the last is a block of its own.
struct Sizes {
  int64_t T, G, H, N, P;
};
constexpr Sizes kSizes[] = {
    {1, 1, 1, 2, 1}, {9, 1, 2, 3, 5}, {70, 2, 2, 16, 16}, {150, 2, 18, 20, 33}, {260, 1, 9, 32, 16}};

// In each row documents of 1, 2, 4, ... tokens, then one to its end.
std::vector<int32_t> StartsOf(int64_t T, int64_t row) {
  std::vector<int32_t> starts;
  while (static_cast<int64_t>(starts.size()) < T) {
    const auto end = static_cast<int64_t>(starts.size()) + row;
    for (int64_t length = 1; static_cast<int64_t>(starts.size()) < end; length *= 2) {
      const auto start = static_cast<int32_t>(starts.size());
      const int64_t left = end - static_cast<int64_t>(starts.size());
      starts.insert(starts.end(), static_cast<size_t>(length < 8 ? std::min(length, left) : left), start);
    }
  }
  return starts;
}

struct Duality {
  Sizes s;
  int64_t row;
  Tensor x, b, c, g, dt, d, d_y;
  std::vector<int32_t> starts;

  Duality(DType dtype, const Sizes& sizes)
      : s(sizes),
        row(sizes.T % 2 == 0 ? sizes.T / 2 : sizes.T),
        x(Tensor::Random({dtype, {s.T, s.H * s.P}}, 1, 2)),
        b(Tensor::Random({dtype, {s.T, s.G * s.N}}, 2)),
        c(Tensor::Random({dtype, {s.T, s.G * s.N}}, 3)),
        g(Tensor::Random({DType::kF32, {s.T, s.H}}, 4, 0.5)),
        dt(Tensor::Random({DType::kF32, {s.T, s.H}}, 5)),
        d(Tensor::Random({dtype, {s.H}}, 6)),
        d_y(Tensor::Random({dtype, {s.T, s.H * s.P}}, 7)),
        starts(StartsOf(s.T, row)) {
    for (int64_t i = 0; i < s.T * s.H; ++i) {
      g.Set(i, -std::fabs(g[i]));
      dt.Set(i, std::fabs(dt[i]));
    }
  }
  Attributes attributes() const { return {{"heads", s.H}, {"groups", s.G}, {"row", row}}; }
  OpCase Forward() const { return {Op::kSsd, {x, b, c, g, dt, d, Tensor::Ints(starts)}, attributes()}; }
  OpCase Backward() const { return {Op::kSsdBackward, {d_y, x, b, c, g, dt, d, Tensor::Ints(starts)}, attributes()}; }
};

// Roundoffs of an element: each of its terms adds one: of a chunk's tokens, of a state's or a head's elements, of heads
// that share b and c. They are of the largest elements that are added up.
void ExpectSumsConform(const OpCase& op_case, const Sizes& s, double factor) {
  const auto want = RunOn(ReferenceKernels(), op_case, 1);
  std::vector<double> largest;
  for (const Tensor& t : want) {
    largest.push_back(0);
    for (int64_t i = 0; i < t.type().shape.elements(); ++i) largest.back() = std::max(largest.back(), std::fabs(t[i]));
  }
  const double terms = static_cast<double>(s.N + s.P + s.H / s.G + std::min(s.T, kStateChunk));
  ExpectConforms(op_case,
                 [&](int k, int64_t) { return factor * kU * (terms + 10) * largest[static_cast<size_t>(k)] + kTiny; });
}

TEST(Ssd, ChunksAgreeWithTheRecurrence) {
  for (DType dtype : kCompute) {
    for (const Sizes& s : kSizes) ExpectSumsConform(Duality(dtype, s).Forward(), s, 1);
  }
}

TEST(Ssd, TheBackwardOfChunksAgreesWithThatOfTheRecurrence) {
  for (DType dtype : kCompute) {
    for (const Sizes& s : kSizes) ExpectSumsConform(Duality(dtype, s).Backward(), s, 2);
  }
}

// Rates as trained models have them, up to 16: most of a state is gone after a token.
TEST(Ssd, StrongDecaysLoseNoMore) {
  for (const Sizes& s : {Sizes{64, 1, 2, 16, 16}, Sizes{128, 2, 2, 16, 8}, Sizes{150, 1, 1, 20, 33}}) {
    Duality duality(DType::kF32, s);
    for (int64_t i = 0; i < s.T * s.H; ++i) {
      duality.g.Set(i, (i / s.H) % 3 == 0 ? duality.g[i] / 100 : 32 * duality.g[i]);
    }
    ExpectSumsConform(duality.Forward(), s, 1);
    ExpectSumsConform(duality.Backward(), s, 2);
  }
}

// Where all of a state is gone after a token, the gradient of its decay is tiny beside all others. What rounding leaves
// of these must not be taken for it: optimizers divide by its size.
TEST(Ssd, TheGradientOfFastDecaysIsNoRoundingOfOthers) {
  for (const int64_t T : {5, 64, 150}) {
    Duality duality(DType::kF32, {T, 1, 2, 16, 16});
    for (int64_t i = 0; i < T * 2; ++i) duality.g.Set(i, -12 - 8.0 * static_cast<double>(i % 7) / 7);
    const OpCase backward = duality.Backward();
    const Tensor want = RunOn(ReferenceKernels(), backward, 1)[3];
    double largest = 0;
    for (int64_t i = 0; i < T * 2; ++i) largest = std::max(largest, std::fabs(want[i]));
    for (const Isa isa : RunnableIsas()) {
      if (isa == Isa::kScalar) continue;
      const Tensor got = RunOn(*MakeCpuKernels({.threads = 1, .isa = isa}), backward, 1)[3];
      for (int64_t i = 0; i < T * 2; ++i) {
        ASSERT_NEAR(got[i], want[i], 1e-4 * largest) << ToString(isa) << ", element " << i << " of " << 2 * T;
      }
    }
  }
}

// Documents of exactly one and two chunks.
TEST(Ssd, ChunksThatEndWithTheirDocumentAgreeWithTheRecurrence) {
  const Sizes s{192, 1, 2, 8, 8};
  Duality duality(DType::kF32, s);
  duality.row = 192;
  for (int32_t t = 0; t < 192; ++t) duality.starts[static_cast<size_t>(t)] = t < 64 ? 0 : 64;
  ExpectSumsConform(duality.Forward(), s, 1);
  ExpectSumsConform(duality.Backward(), s, 2);
}

// The last document of the second row, alone: the same bits.
TEST(Ssd, ANeighbourInTheRowChangesNoBit) {
  const Duality packed(DType::kF32, {300, 2, 4, 16, 24});
  const int64_t start = packed.starts.back();
  Sizes s = packed.s;
  s.T -= start;
  Duality alone(DType::kF32, s);
  alone.row = s.T;
  alone.starts.assign(static_cast<size_t>(s.T), 0);
  for (auto [whole, part] : {std::pair(&packed.x, &alone.x),
                             {&packed.b, &alone.b},
                             {&packed.c, &alone.c},
                             {&packed.g, &alone.g},
                             {&packed.dt, &alone.dt},
                             {&packed.d_y, &alone.d_y}}) {
    const int64_t width = whole->type().shape[1];
    for (int64_t i = 0; i < s.T * width; ++i) part->Set(i, (*whole)[start * width + i]);
  }
  for (const Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.threads = 1, .isa = isa});
    for (const bool forward : {true, false}) {
      const auto of_packed = RunOn(*kernels, forward ? packed.Forward() : packed.Backward(), 1);
      const auto of_alone = RunOn(*kernels, forward ? alone.Forward() : alone.Backward(), 1);
      for (size_t k = 0; k < of_alone.size(); ++k) {
        const int64_t width = of_alone[k].type().shape[1];
        for (int64_t i = 0; i < s.T * width; ++i) {
          ASSERT_EQ(of_packed[k][start * width + i], of_alone[k][i]) << "output " << k << ", element " << i;
        }
      }
    }
  }
}

// Two sequences in turn, one of which begins, in three slots; one token is padding.
TEST(SsdCached, AgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (const Sizes& s : {Sizes{6, 1, 2, 3, 5}, Sizes{6, 2, 4, 32, 20}}) {
      const Duality f(dtype, s);
      const OpCase cached{Op::kSsdCached,
                          {f.x, f.b, f.c, f.g, f.dt, f.d, Tensor::Random({DType::kF32, {3, s.H, s.N, s.P}}, 8),
                           Tensor::Ints({2, 0, 2, 0, -1, 0}), Tensor::Ints({5, 0, 6, 1, 0, 2})},
                          {{"heads", s.H}, {"groups", s.G}}};
      ExpectSumsConform(cached, s, 1);
    }
  }
}

// Fed in steps of any length, a sequence gets the same bits, which are what chunks of the document give but for
// roundoffs: as those of chunks, of the largest element.
TEST(SsdCached, AnySplitGivesTheSameBitsAndThoseOfTheDocumentNearly) {
  const Duality f(DType::kF32, {101, 2, 4, 16, 24});
  const Sizes& s = f.s;
  const std::vector<int32_t> starts(static_cast<size_t>(s.T), 0);
  const OpCase whole{
      Op::kSsd, {f.x, f.b, f.c, f.g, f.dt, f.d, Tensor::Ints(starts)}, {{"heads", s.H}, {"groups", s.G}}};
  const Tensor want = RunOn(ReferenceKernels(), whole, 1)[0];
  double largest = 0;
  for (int64_t i = 0; i < s.T * s.H * s.P; ++i) largest = std::max(largest, std::fabs(want[i]));
  for (const Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.threads = 1, .isa = isa});
    std::vector<double> first;
    for (const int64_t step : {1, 7, 101}) {
      Tensor state = Tensor::Random({DType::kF32, {2, s.H, s.N, s.P}}, 9);
      std::vector<double> got;
      for (int64_t at = 0; at < s.T; at += step) {
        const int64_t n = std::min(step, s.T - at);
        OpCase cached{Op::kSsdCached, {}, {{"heads", s.H}, {"groups", s.G}}};
        for (const Tensor* const all : {&f.x, &f.b, &f.c, &f.g, &f.dt}) {
          const int64_t width = all->type().shape[1];
          Tensor part({all->type().dtype, {n, width}});
          for (int64_t i = 0; i < n * width; ++i) part.Set(i, (*all)[at * width + i]);
          cached.inputs.push_back(std::move(part));
        }
        std::vector<int32_t> positions;
        for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(at + i));
        cached.inputs.push_back(f.d);
        cached.inputs.push_back(std::move(state));
        cached.inputs.push_back(Tensor::Ints(std::vector<int32_t>(static_cast<size_t>(n), 1)));
        cached.inputs.push_back(Tensor::Ints(positions));
        auto out = RunOn(*kernels, cached, 1);
        for (int64_t i = 0; i < n * s.H * s.P; ++i) got.push_back(out[0][i]);
        state = std::move(out[1]);
      }
      if (first.empty()) first = got;
      // The twin rounds its states to f32 between steps alone.
      if (isa != Isa::kScalar) {
        EXPECT_EQ(got, first) << "steps of " << step;
      }
      const double off = kU * static_cast<double>(s.N + kStateChunk) * largest;
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[static_cast<int64_t>(i)], off) << i;
    }
  }
}

}  // namespace
}  // namespace temper::ssd_test
