// short_conv and its backward: the fast kernels against their twins, and documents against documents alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::short_conv_test {
namespace {

// (T, C, L): single elements, odd channels, more than one block of channels and of tokens.
constexpr int64_t kSizes[][3] = {{1, 1, 1}, {5, 7, 3}, {9, 64, 4}, {131, 65, 3}, {200, 150, 4}, {40, 33, 8}};

// Documents of 1, 2, 3, ... tokens, then one to the end.
std::vector<int32_t> StartsOf(int64_t T) {
  std::vector<int32_t> starts;
  for (int32_t length = 1; length < 9; ++length) {
    const auto start = static_cast<int32_t>(starts.size());
    starts.insert(starts.end(), static_cast<size_t>(length), start);
  }
  const auto last = static_cast<int32_t>(starts.size());
  starts.resize(static_cast<size_t>(T), last);
  return starts;
}

struct Conv {
  Tensor x, w, d_y, acc, bias, acc_bias;
  std::vector<int32_t> starts;
  int64_t T, C, L;

  Conv(DType dtype, int64_t tokens, int64_t channels, int64_t taps)
      : x(Tensor::Random({dtype, {tokens, channels}}, 1, 2)),
        w(Tensor::Random({dtype, {channels, 1, taps}}, 2)),
        d_y(Tensor::Random({dtype, {tokens, channels}}, 3)),
        acc(Tensor::Random({DType::kF32, {channels, 1, taps}}, 4)),
        bias(Tensor::Random({dtype, {channels}}, 5)),
        acc_bias(Tensor::Random({DType::kF32, {channels}}, 6)),
        starts(StartsOf(tokens)),
        T(tokens),
        C(channels),
        L(taps) {}

  // With silu, with a bias.
  OpCase Forward(bool silu, bool shifted = false) const {
    OpCase forward{Op::kShortConv, {x, w, Tensor::Ints(starts)}, {{"silu", int64_t{silu}}, {"bias", int64_t{shifted}}}};
    if (shifted) forward.inputs.push_back(bias);
    return forward;
  }
  OpCase Backward(bool silu, bool accumulates, bool shifted = false) const {
    OpCase backward{
        Op::kShortConvBackward,
        {d_y, x, w, Tensor::Ints(starts)},
        {{"silu", int64_t{silu}}, {"grad_w", int64_t{1}}, {"acc_w", int64_t{accumulates}}, {"bias", int64_t{shifted}}}};
    if (shifted) backward.inputs.push_back(bias);
    if (accumulates) backward.inputs.push_back(acc);
    if (accumulates && shifted) backward.inputs.push_back(acc_bias);
    return backward;
  }
  // Calls f(t, s, tap) for each token s that token t reads.
  template <class F>
  void ForEachRead(int64_t t, const F& f) const {
    for (int64_t j = 0; j < L && t - j >= starts[static_cast<size_t>(t)]; ++j) f(t - j, L - 1 - j);
  }
  // The sum of the magnitudes of what is added up for token t of channel c, before the activation.
  double Magnitude(int64_t t, int64_t c, bool shifted = false) const {
    double sum = shifted ? std::fabs(bias[c]) : 0;
    ForEachRead(t, [&](int64_t s, int64_t tap) { sum += std::fabs(x[s * C + c] * w[c * L + tap]); });
    return sum;
  }
  // The error of a gradient before the activation: silu' is at most 1.1, and its slope at most 0.5.
  double GradientError(int64_t t, int64_t c, bool shifted) const {
    return std::fabs(d_y[t * C + c]) * kU * (20 + 0.5 * static_cast<double>(L + 1) * Magnitude(t, c, shifted));
  }
};

// L products and sums; silu multiplies errors by at most 1.1 and adds those of the logistic function.
TEST(ShortConv, AgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (const auto& [T, C, L] : kSizes) {
      const Conv conv(dtype, T, C, L);
      for (const auto& [silu, shifted] : {std::pair(false, false), {true, false}, {true, true}}) {
        ExpectConforms(conv.Forward(silu, shifted), [&, silu = silu, shifted = shifted](int, int64_t i) {
          const double magnitude = conv.Magnitude(i / conv.C, i % conv.C, shifted);
          return kU * magnitude * ((silu ? 1.1 : 1) * static_cast<double>(conv.L + 1) + (silu ? 10 : 0)) + kTiny;
        });
      }
    }
  }
}

TEST(ShortConv, BackwardAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (const auto& [T, C, L] : kSizes) {
      const Conv conv(dtype, T, C, L);
      for (const auto& [silu, shifted] : {std::pair(false, false), {true, false}, {true, true}}) {
        std::vector<double> d_x(static_cast<size_t>(conv.T * conv.C)), d_w(static_cast<size_t>(conv.C * conv.L));
        std::vector<double> d_bias(static_cast<size_t>(conv.C));
        // Roundoffs of a sum over tokens: blocks of 64, then over blocks.
        const double column = std::min<double>(64, static_cast<double>(conv.T)) + static_cast<double>(conv.T) / 64 + 2;
        for (int64_t t = 0; t < conv.T; ++t) {
          for (int64_t c = 0; c < conv.C; ++c) {
            const double d_u = 1.1 * std::fabs(conv.d_y[t * conv.C + c]), off = conv.GradientError(t, c, shifted);
            d_bias[static_cast<size_t>(c)] += off + kU * column * d_u;
            conv.ForEachRead(t, [&](int64_t s, int64_t tap) {
              d_x[static_cast<size_t>(s * conv.C + c)] +=
                  std::fabs(conv.w[c * conv.L + tap]) * (off + kU * static_cast<double>(conv.L + 1) * d_u);
              d_w[static_cast<size_t>(c * conv.L + tap)] +=
                  std::fabs(conv.x[s * conv.C + c]) * (off + kU * column * d_u);
            });
          }
        }
        for (const bool accumulates : {false, true}) {
          ExpectConforms(conv.Backward(silu, accumulates, shifted), [&](int k, int64_t i) {
            const double off = (k == 0 ? d_x : k == 1 ? d_w : d_bias)[static_cast<size_t>(i)];
            return off + (k > 0 && accumulates ? kU : 0) + kTiny;
          });
        }
      }
    }
  }
}

// The rows of the last document, alone: the same bits.
TEST(ShortConv, ANeighbourInTheRowChangesNoBit) {
  const Conv packed(DType::kF32, 70, 65, 4);
  const int64_t start = packed.starts.back(), T = packed.T - start;
  Conv alone(DType::kF32, T, packed.C, packed.L);
  alone.w = Tensor(packed.w);
  alone.starts.assign(static_cast<size_t>(T), 0);
  for (int64_t i = 0; i < T * packed.C; ++i) {
    alone.x.Set(i, packed.x[start * packed.C + i]);
    alone.d_y.Set(i, packed.d_y[start * packed.C + i]);
  }
  for (const Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.threads = 1, .isa = isa});
    for (const bool forward : {true, false}) {
      const Tensor of_packed = RunOn(*kernels, forward ? packed.Forward(true) : packed.Backward(true, false), 1)[0];
      const Tensor of_alone = RunOn(*kernels, forward ? alone.Forward(true) : alone.Backward(true, false), 1)[0];
      for (int64_t i = 0; i < T * packed.C; ++i) ASSERT_EQ(of_packed[start * packed.C + i], of_alone[i]) << i;
    }
  }
}

// Two sequences in turn, one of which begins, in three slots; one token is padding.
TEST(ShortConvCached, AgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (const auto& [C, L] : {std::pair<int64_t, int64_t>{7, 3}, {65, 4}, {9, 1}}) {
      const Tensor x = Tensor::Random({dtype, {6, C}}, 1, 2), w = Tensor::Random({dtype, {C, 1, L}}, 2);
      const Tensor state = Tensor::Random({dtype, {3, L - 1, C}}, 3);
      for (const auto& [silu, bias] : {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {1, 1}}) {
        OpCase cached{Op::kShortConvCached,
                      {x, w, state, Tensor::Ints({2, 0, 2, 0, -1, 0}), Tensor::Ints({5, 0, 6, 1, 0, 2})},
                      {{"silu", silu}, {"bias", bias}}};
        if (bias) cached.inputs.push_back(Tensor::Random({dtype, {C}}, 4));
        // Operands are at most 2: L products and sums, and the bias; silu as above.
        ExpectConforms(cached, [&, L = L](int k, int64_t) {
          return k == 1 ? 0 : kU * 2 * static_cast<double>(L + 1) * (1.1 * static_cast<double>(L + 2) + 10);
        });
      }
    }
  }
}

// Fed in steps of any length, a sequence gets what a document gets.
TEST(ShortConvCached, AnySplitGivesTheBitsOfTheDocument) {
  const Conv conv(DType::kF32, 11, 70, 4);
  const std::vector<int32_t> starts(11, 0);
  for (const Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.threads = 1, .isa = isa});
    const OpCase whole{Op::kShortConv, {conv.x, conv.w, Tensor::Ints(starts)}, {{"silu", int64_t{1}}}};
    const Tensor want = RunOn(*kernels, whole, 1)[0];
    Tensor state = Tensor::Random({DType::kF32, {2, 3, 70}}, 9);
    int64_t at = 0;
    for (const int64_t tokens : {1, 5, 2, 3}) {
      Tensor x({DType::kF32, {tokens, 70}});
      std::vector<int32_t> slots, positions;
      for (int64_t s = 0; s < tokens; ++s) {
        slots.push_back(1);
        positions.push_back(static_cast<int32_t>(at + s));
        for (int64_t c = 0; c < 70; ++c) x.Set(s * 70 + c, conv.x[(at + s) * 70 + c]);
      }
      const OpCase step{Op::kShortConvCached,
                        {x, conv.w, state, Tensor::Ints(slots), Tensor::Ints(positions)},
                        {{"silu", int64_t{1}}}};
      auto out = RunOn(*kernels, step, 1);
      for (int64_t i = 0; i < tokens * 70; ++i) ASSERT_EQ(out[0][i], want[at * 70 + i]) << "token " << at + i / 70;
      state = std::move(out[1]);
      at += tokens;
    }
  }
}

}  // namespace
}  // namespace temper::short_conv_test
