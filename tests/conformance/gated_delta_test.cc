// decay, gated_delta and their backwards: the fast kernels against their twins, and documents against documents alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "graph/ops/gated_delta.h"
#include "op_case.h"

namespace temper::gated_delta_test {
namespace {

// Of tokens, heads of keys and values, and elements of each; two packed rows where T is even.
struct Sizes {
  int64_t T, K, V, D, F;
};
constexpr Sizes kSizes[] = {
    {1, 1, 1, 2, 1}, {9, 1, 2, 3, 5}, {70, 2, 2, 16, 16}, {150, 2, 4, 20, 33}, {260, 1, 2, 64, 32}};

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

struct Rule {
  Sizes s;
  int64_t row;
  Tensor q, k, v, g, b, d_o;
  std::vector<int32_t> starts;

  Rule(DType dtype, const Sizes& sizes)
      : s(sizes),
        row(sizes.T % 2 == 0 ? sizes.T / 2 : sizes.T),
        q(Tensor::Random({dtype, {s.T, s.K * s.D}}, 1, 2)),
        k(Tensor::Random({dtype, {s.T, s.K * s.D}}, 2, 2)),
        v(Tensor::Random({dtype, {s.T, s.V * s.F}}, 3, 2)),
        g(Tensor::Random({DType::kF32, {s.T, s.V}}, 4, 0.5)),
        b(Tensor::Random({dtype, {s.T, s.V}}, 5, 3)),
        d_o(Tensor::Random({dtype, {s.T, s.V * s.F}}, 6)),
        starts(StartsOf(s.T, row)) {
    for (int64_t i = 0; i < s.T * s.V; ++i) g.Set(i, -std::fabs(g[i]));
  }
  Attributes attributes() const { return {{"heads", s.V}, {"key_heads", s.K}, {"row", row}}; }
  OpCase Forward() const { return {Op::kGatedDelta, {q, k, v, g, b, Tensor::Ints(starts)}, attributes()}; }
  OpCase Backward() const {
    return {Op::kGatedDeltaBackward, {d_o, q, k, v, g, b, Tensor::Ints(starts)}, attributes()};
  }
};

// Roundoffs of an element: of a chunk, each of its D, F or C terms adds one, and the system passes them on to later
// tokens; keys of length 1 and decays do not let them grow. They are of the largest elements that are added up.
void ExpectSumsConform(const OpCase& op_case, const Sizes& s, double factor) {
  const auto want = RunOn(ReferenceKernels(), op_case, 1);
  std::vector<double> largest;
  for (const Tensor& t : want) {
    largest.push_back(0);
    for (int64_t i = 0; i < t.type().shape.elements(); ++i) largest.back() = std::max(largest.back(), std::fabs(t[i]));
  }
  const double terms = static_cast<double>(s.D + s.F + std::min(s.T, kStateChunk));
  ExpectConforms(op_case,
                 [&](int k, int64_t) { return factor * kU * (terms + 10) * largest[static_cast<size_t>(k)] + kTiny; });
}

TEST(GatedDelta, ChunksAgreeWithTheRecurrence) {
  for (DType dtype : kCompute) {
    for (const Sizes& s : kSizes) ExpectSumsConform(Rule(dtype, s).Forward(), s, 1);
  }
}

TEST(GatedDelta, TheBackwardOfChunksAgreesWithThatOfTheRecurrence) {
  for (DType dtype : kCompute) {
    for (const Sizes& s : kSizes) ExpectSumsConform(Rule(dtype, s).Backward(), s, 2);
  }
}

// Rates as trained models have them, up to 16: most of a state is gone after a token.
TEST(GatedDelta, StrongDecaysLoseNoMore) {
  for (const Sizes& s : {Sizes{64, 1, 2, 16, 16}, Sizes{128, 2, 2, 16, 8}, Sizes{150, 1, 1, 20, 33}}) {
    Rule rule(DType::kF32, s);
    for (int64_t i = 0; i < s.T * s.V; ++i) rule.g.Set(i, (i / s.V) % 3 == 0 ? rule.g[i] / 100 : 32 * rule.g[i]);
    ExpectSumsConform(rule.Forward(), s, 1);
    ExpectSumsConform(rule.Backward(), s, 2);
  }
}

// Where all of a state is gone after a token, the gradient of its decay is tiny beside all others. What rounding leaves
// of these must not be taken for it: optimizers divide by its size.
TEST(GatedDelta, TheGradientOfFastDecaysIsNoRoundingOfOthers) {
  for (const int64_t T : {5, 64, 150}) {
    Rule rule(DType::kF32, {T, 1, 2, 16, 16});
    for (int64_t i = 0; i < T * 2; ++i) rule.g.Set(i, -12 - 8.0 * static_cast<double>(i % 7) / 7);
    const OpCase backward = rule.Backward();
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
TEST(GatedDelta, ChunksThatEndWithTheirDocumentAgreeWithTheRecurrence) {
  const Sizes s{192, 1, 2, 8, 8};
  Rule rule(DType::kF32, s);
  rule.row = 192;
  for (int32_t t = 0; t < 192; ++t) rule.starts[static_cast<size_t>(t)] = t < 64 ? 0 : 64;
  ExpectSumsConform(rule.Forward(), s, 1);
  ExpectSumsConform(rule.Backward(), s, 2);
}

// Keys that are all alike, written in full: the hardest system to solve. The state then is the last value.
TEST(GatedDelta, WritesOverWhatTheSameKeyHeld) {
  const Sizes s{100, 1, 1, 8, 4};
  Rule rule(DType::kF32, s);
  for (int64_t i = 0; i < s.T * s.D; ++i) rule.k.Set(i, rule.k[i % s.D]);
  for (int64_t i = 0; i < s.T; ++i) {
    rule.b.Set(i, 40);
    rule.g.Set(i, 0);
  }
  rule.q = Tensor(rule.k);
  for (const Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.threads = 1, .isa = isa});
    const Tensor o = RunOn(*kernels, rule.Forward(), 1)[0];
    for (int64_t i = 0; i < s.T * s.F; ++i) EXPECT_NEAR(o[i] * std::sqrt(8.0), rule.v[i], 1e-5) << i;
  }
}

// The last document of the second row, alone: the same bits.
TEST(GatedDelta, ANeighbourInTheRowChangesNoBit) {
  const Rule packed(DType::kF32, {300, 2, 4, 16, 24});
  const int64_t start = packed.starts.back();
  Sizes s = packed.s;
  s.T -= start;
  Rule alone(DType::kF32, s);
  alone.row = s.T;
  alone.starts.assign(static_cast<size_t>(s.T), 0);
  const auto tail = [&](const Tensor& whole, Tensor* part) {
    const int64_t width = whole.type().shape[1];
    for (int64_t i = 0; i < s.T * width; ++i) part->Set(i, whole[start * width + i]);
  };
  for (auto [whole, part] : {std::pair(&packed.q, &alone.q),
                             {&packed.k, &alone.k},
                             {&packed.v, &alone.v},
                             {&packed.g, &alone.g},
                             {&packed.b, &alone.b},
                             {&packed.d_o, &alone.d_o}}) {
    tail(*whole, part);
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
TEST(GatedDeltaCached, AgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (const Sizes& s : {Sizes{6, 1, 2, 3, 5}, Sizes{6, 2, 4, 32, 20}}) {
      const Rule rule(dtype, s);
      const OpCase cached{Op::kGatedDeltaCached,
                          {rule.q, rule.k, rule.v, rule.g, rule.b, Tensor::Random({DType::kF32, {3, s.V, s.D, s.F}}, 8),
                           Tensor::Ints({2, 0, 2, 0, -1, 0}), Tensor::Ints({5, 0, 6, 1, 0, 2})},
                          {{"heads", s.V}, {"key_heads", s.K}}};
      ExpectSumsConform(cached, s, 1);
    }
  }
}

// Fed in steps of any length, a sequence gets the same bits, which are what chunks of the document give but for
// roundoffs.
TEST(GatedDeltaCached, AnySplitGivesTheSameBitsAndThoseOfTheDocumentNearly) {
  const Rule rule(DType::kF32, {101, 2, 4, 16, 24});
  const Sizes& s = rule.s;
  const std::vector<int32_t> starts(static_cast<size_t>(s.T), 0);
  const OpCase whole{Op::kGatedDelta,
                     {rule.q, rule.k, rule.v, rule.g, rule.b, Tensor::Ints(starts)},
                     {{"heads", s.V}, {"key_heads", s.K}}};
  const Tensor want = RunOn(ReferenceKernels(), whole, 1)[0];
  for (const Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.threads = 1, .isa = isa});
    std::vector<double> first;
    for (const int64_t step : {1, 7, 101}) {
      Tensor state = Tensor::Random({DType::kF32, {2, s.V, s.D, s.F}}, 9);
      std::vector<double> got;
      for (int64_t at = 0; at < s.T; at += step) {
        const int64_t n = std::min(step, s.T - at);
        OpCase cached{Op::kGatedDeltaCached, {}, {{"heads", s.V}, {"key_heads", s.K}}};
        for (const Tensor* const all : {&rule.q, &rule.k, &rule.v, &rule.g, &rule.b}) {
          const int64_t width = all->type().shape[1];
          Tensor part({all->type().dtype, {n, width}});
          for (int64_t i = 0; i < n * width; ++i) part.Set(i, (*all)[at * width + i]);
          cached.inputs.push_back(std::move(part));
        }
        std::vector<int32_t> positions;
        for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(at + i));
        cached.inputs.push_back(std::move(state));
        cached.inputs.push_back(Tensor::Ints(std::vector<int32_t>(static_cast<size_t>(n), 1)));
        cached.inputs.push_back(Tensor::Ints(positions));
        auto out = RunOn(*kernels, cached, 1);
        for (int64_t i = 0; i < n * s.V * s.F; ++i) got.push_back(out[0][i]);
        state = std::move(out[1]);
      }
      if (first.empty()) first = got;
      // The twin rounds its states to f32 between steps alone.
      if (isa != Isa::kScalar) EXPECT_EQ(got, first) << "steps of " << step;
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[static_cast<int64_t>(i)], 2e-5) << i;
    }
  }
}

// libm's exp and log1p within one roundoff each; exp(a_log) and the sum in front of them multiply theirs.
TEST(Decay, AgreesWithItsTwinInBothDirections) {
  for (DType dtype : kCompute) {
    for (const auto& [T, H] : {std::pair<int64_t, int64_t>{1, 1}, {70, 5}}) {
      const Tensor a = Tensor::Random({dtype, {T, H}}, 1, 20), a_log = Tensor::Random({dtype, {H}}, 2, 3);
      const Tensor dt_bias = Tensor::Random({dtype, {H}}, 3, 4), d_g = Tensor::Random({DType::kF32, {T, H}}, 4);
      const Tensor acc = Tensor::Random({DType::kF32, {H}}, 5);
      const OpCase decay{Op::kDecay, {a, a_log, dt_bias}, {}};
      const Tensor g = RunOn(ReferenceKernels(), decay, 1)[0];
      const auto off = [&](int64_t i) { return 30 * kU * std::fabs(g[i]) + kTiny; };
      ExpectConforms(decay, [&](int, int64_t i) { return off(i); });
      OpCase with_steps = decay;
      with_steps.attributes = {{"steps", int64_t{1}}, {"min", 0.25}};
      const Tensor step = RunOn(ReferenceKernels(), with_steps, 1)[1];
      ExpectConforms(with_steps, [&, H = H](int k, int64_t i) {
        return 30 * kU * step[i] * (k == 0 ? std::exp(a_log[i % H]) : 1) + kTiny;
      });
      // What comes through the step: the logistic function is at most 1.
      ExpectConforms({Op::kDecayBackward,
                      {d_g, d_g, a, a_log, dt_bias, acc, acc},
                      {{"grad_w", int64_t{1}}, {"acc_w", int64_t{1}}, {"steps", int64_t{1}}, {"min", 0.25}}},
                     [&, H = H, T = T](int k, int64_t i) {
                       if (k == 0) return 40 * kU * std::fabs(d_g[i]) * (1 + std::exp(a_log[i % H])) + kTiny;
                       double sum = kU;
                       for (int64_t t = 0; t < T; ++t) {
                         sum += kU * std::exp(a_log[i]) * (k == 1 ? 30 * step[t * H + i] : 40) + (k == 1 ? 0 : 40 * kU);
                       }
                       return sum;
                     });
      ExpectConforms(
          {Op::kDecayBackward, {d_g, a, a_log, dt_bias, acc, acc}, {{"grad_w", int64_t{1}}, {"acc_w", int64_t{1}}}},
          [&, H = H, T = T](int k, int64_t i) {
            // The logistic function is at most softplus / ln 2 where it matters, and at most 1.
            if (k == 0) return 40 * kU * std::fabs(d_g[i]) * std::exp(a_log[i % H]) + kTiny;
            double sum = kU;
            for (int64_t t = 0; t < T; ++t) sum += (k == 1 ? off(t * H + i) : 40 * kU * std::exp(a_log[i]));
            return sum;
          });
    }
  }
}

}  // namespace
}  // namespace temper::gated_delta_test
