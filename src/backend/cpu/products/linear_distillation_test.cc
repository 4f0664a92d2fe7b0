// linear_distillation against its scalar twin.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/cpu/kernel_twin.h"
#include "graph/named_ops.h"
#include "graph/ops/loss_operands.h"

namespace temper::linear_distillation_test {
namespace {

struct DistillCase {
  const char* name;
  int64_t T, V, D, E, R;  // R = 0: no second pair
  double beta, temperature;
  double supervised = 0.7;  // fraction of tokens
  int64_t chunk = 512;
  bool trains_w = true;
  bool full = false;  // with weights, biases, caps and sums that gradients are added to
};

constexpr DistillCase kCases[] = {
    {"forward", 37, 101, 24, 40, 0, 0, 1},
    {"reverse", 37, 101, 24, 40, 0, 1, 1},
    {"between", 37, 101, 24, 40, 0, 0.5, 1},
    {"forward, several chunks, all operands", 61, 70, 33, 17, 5, 0, 2, 0.8, 16, true, true},
    {"reverse, several chunks, all operands", 61, 70, 33, 17, 5, 1, 0.7, 0.8, 16, true, true},
    {"between, several chunks, all operands", 61, 70, 33, 17, 5, 0.3, 2, 0.8, 16, true, true},
    {"several pieces of words", 7, 4500, 8, 16, 0, 0.9, 1, 0.9},
    {"forward, several pieces of words", 7, 4500, 8, 16, 0, 0, 1, 0.9},
    {"LoRA on the head, base frozen", 50, 90, 48, 24, 8, 0.5, 1, 0.6, 20, false},
    {"one token, one word", 1, 1, 16, 8, 0, 0.5, 1, 1.0},
    {"nothing supervised", 9, 40, 16, 8, 0, 0.5, 1, 0.0, 512, true, true},
};

struct DistillRun {
  DistillRun(const DistillCase& c, DType dtype) {
    attributes = {{"beta", c.beta},
                  {"temperature", c.temperature},
                  {"chunk", c.chunk},
                  {"grad_x", int64_t{1}},
                  {"grad_w", int64_t{c.trains_w}}};
    inputs.push_back(RandomTensor({dtype, {c.T, c.D}}, 1));
    inputs.push_back(RandomTensor({dtype, {c.V, c.D}}, 2, 0.4));
    TestTensor target({DType::kI32, {c.T}});
    std::mt19937 engine(3);
    for (int64_t t = 0; t < c.T; ++t) {
      const bool supervised = std::uniform_real_distribution<double>(0, 1)(engine) < c.supervised;
      target.Set(t, supervised ? static_cast<double>(engine() % static_cast<uint32_t>(c.V)) : -1);
    }
    inputs.push_back(std::move(target));
    if (c.R > 0) {
      inputs.push_back(RandomTensor({dtype, {c.T, c.R}}, 4));
      inputs.push_back(RandomTensor({dtype, {c.V, c.R}}, 5, 0.4));
      for (const char* flag : {"pair2", "grad_x2", "grad_w2"}) attributes.Set(flag, int64_t{1});
    }
    if (c.full) inputs.push_back(RandomTensor({dtype, {c.V}}, 6));
    inputs.push_back(RandomTensor({dtype, {c.T, c.E}}, 7));
    inputs.push_back(RandomTensor({dtype, {c.V, c.E}}, 8, 0.4));
    if (c.full) {
      inputs.push_back(RandomTensor({dtype, {c.V}}, 9));
      TestTensor weight({DType::kF32, {c.T}});
      for (int64_t t = 0; t < c.T; ++t) weight.Set(t, static_cast<double>(engine() % 8) / 4);
      inputs.push_back(std::move(weight));
      for (const char* flag : {"bias", "grad_bias", "teacher_bias", "weighted", "acc_w", "acc_bias"}) {
        attributes.Set(flag, int64_t{1});
      }
      attributes.Set("softcap", 4.0);
      attributes.Set("teacher_softcap", 6.0);
      inputs.push_back(RandomTensor({DType::kF32, {c.V, c.D}}, 10));
      if (c.R > 0) {
        attributes.Set("acc_w2", int64_t{1});
        inputs.push_back(RandomTensor({DType::kF32, {c.V, c.R}}, 11));
      }
      inputs.push_back(RandomTensor({DType::kF32, {c.V}}, 12));
    }
    const LossOperands operands(attributes);
    for (const LossOperands::Pair& pair : operands.pairs) {
      if (pair.acc >= 0) in_place.emplace_back(pair.d_w, pair.acc);
    }
    if (operands.acc_bias >= 0) in_place.emplace_back(operands.d_bias, operands.acc_bias);
  }

  Attributes attributes;
  TestTensors inputs;
  std::vector<std::pair<int, int>> in_place;
};

// The most that rounding can change outputs by, besides their own rounding.
struct DistillBounds {
  DistillBounds(const DistillCase& c, DType dtype, const DistillRun& run);

  std::vector<std::vector<double>> of;  // by output
};

// sum_i |x_i w_i| and sum_i x_i w_i of row t and word v.
struct DotOf {
  double sum = 0, magnitude = 0;
  DotOf(const TestTensor& x, const TestTensor& w, int64_t t, int64_t v) {
    const int64_t I = x.type().shape[1];
    for (int64_t i = 0; i < I; ++i) {
      const double term = x.Get(t * I + i) * w.Get(v * I + i);
      sum += term;
      magnitude += std::fabs(term);
    }
  }
};

// A number with the most that it may be off by.
struct Rounded {
  double value, off;
};

// Divides logits by the temperature and takes the logarithm of their softmax. A cap is no steeper than 1, and adds a
// tanh within 6u and four roundings; each step after that rounds by u of numbers no larger than the greatest, and the
// logarithm of a sum of V exponentials (within 4u each, in V / 8 additions) is off by V / 8 + 8 roundings at most.
void LogSoftmax(double cap, double temperature, std::vector<Rounded>* z) {
  const double u32 = UnitRoundoff(DType::kF32);
  double largest = -INFINITY, size = 0, most = 0, sum = 0;
  for (Rounded& r : *z) {
    if (cap > 0) {
      r.value = cap * std::tanh(r.value / cap);
      r.off += 10 * u32 * std::fabs(r.value);
    }
    r.value /= temperature;
    r.off = r.off / temperature + 2 * u32 * std::fabs(r.value);
    largest = std::max(largest, r.value);
    size = std::max(size, std::fabs(r.value));
    most = std::max(most, r.off);
  }
  for (const Rounded& r : *z) sum += std::exp(r.value - largest);
  const double log_sum = largest + std::log(sum);
  for (Rounded& r : *z) {
    r.value -= log_sum;
    r.off += most + (static_cast<double>(z->size()) / 8 + 16 + 8 * size + 4 * std::fabs(r.value)) * u32;
  }
}

DistillBounds::DistillBounds(const DistillCase& c, DType dtype, const DistillRun& run) {
  const double u = UnitRoundoff(dtype), u32 = UnitRoundoff(DType::kF32);
  const TestTensors& in = run.inputs;
  const LossOperands o(run.attributes);
  of.resize(static_cast<size_t>(o.num_outputs));
  of[0].resize(static_cast<size_t>(c.T));
  for (size_t p = 0; p < o.num_pairs; ++p) {
    const int64_t I = p == 0 ? c.D : c.R;
    if (o.pairs[p].d_x >= 0) of[static_cast<size_t>(o.pairs[p].d_x)].resize(static_cast<size_t>(c.T * I));
    if (o.pairs[p].d_w >= 0) of[static_cast<size_t>(o.pairs[p].d_w)].resize(static_cast<size_t>(c.V * I));
  }
  if (o.d_bias >= 0) of[static_cast<size_t>(o.d_bias)].resize(static_cast<size_t>(c.V));
  // Sums over tokens begin with what they are added to, and round in each step.
  const double steps = static_cast<double>(c.T + 4) * u32;
  const auto begin = [&](int output, int acc) {
    if (output < 0 || acc < 0) return;
    std::vector<double>& b = of[static_cast<size_t>(output)];
    for (size_t i = 0; i < b.size(); ++i) {
      b[i] = steps * std::fabs(in[static_cast<size_t>(acc)].Get(static_cast<int64_t>(i)));
    }
  };
  for (size_t p = 0; p < o.num_pairs; ++p) begin(o.pairs[p].d_w, o.pairs[p].acc);
  begin(o.d_bias, o.acc_bias);
  const auto V = static_cast<size_t>(c.V);
  const double cap = run.attributes.DoubleOr("softcap", 0);
  for (int64_t t = 0; t < c.T; ++t) {
    if (in[2].Get(t) < 0) continue;
    const double weight = o.weight < 0 ? 1 : in[static_cast<size_t>(o.weight)].Get(t);
    std::vector<Rounded> p(V), q(V);
    std::vector<double> slope(V, 1.0), off_x(V);
    for (size_t v = 0; v < V; ++v) {
      const auto word = static_cast<int64_t>(v);
      double sum = 0, magnitude = 0, rounded = 0;
      for (size_t k = o.num_pairs; k-- > 0;) {
        const DotOf dot(in[static_cast<size_t>(o.pairs[k].x)], in[static_cast<size_t>(o.pairs[k].w)], t, word);
        sum += dot.sum;
        magnitude += dot.magnitude;
        if (k == 0 && o.bias >= 0) {
          const double bias = in[static_cast<size_t>(o.bias)].Get(word);
          sum += bias;
          magnitude += std::fabs(bias);
        }
        rounded += std::fabs(sum);
      }
      p[v] = {sum, 1.01 * u * rounded + static_cast<double>(c.D + c.R + 4) * u32 * magnitude};
      off_x[v] = p[v].off;
      if (cap > 0) slope[v] = 1 - std::pow(std::tanh(sum / cap), 2);
      const DotOf dot(in[static_cast<size_t>(o.teacher_x)], in[static_cast<size_t>(o.teacher_w)], t, word);
      const double bias = o.teacher_bias < 0 ? 0 : in[static_cast<size_t>(o.teacher_bias)].Get(word);
      q[v] = {dot.sum + bias, 1.01 * u * std::fabs(dot.sum + bias) +
                                  static_cast<double>(c.E + 4) * u32 * (dot.magnitude + std::fabs(bias))};
    }
    LogSoftmax(cap, c.temperature, &p);
    LogSoftmax(run.attributes.DoubleOr("teacher_softcap", 0), c.temperature, &q);
    double most = 0;
    for (size_t v = 0; v < V; ++v) most = std::max({most, p[v].off, q[v].off});
    // With r = log(p / m) and s = log(q / m), whose arguments are off by `most` each: the loss is a mean of r under p
    // and of s under q, so it is off by their changes and by the changes of p and q (a factor of exp(2 most) at most)
    // times r and s. exp and log are within 4 and 3 roundings, sums of V / 8.
    const double arithmetic = (static_cast<double>(c.V) / 8 + 40) * u32, change = std::exp(2 * most) - 1 + arithmetic;
    double size_p = 0, size_q = 0, k = 0;
    std::vector<double> r(V);
    for (size_t v = 0; v < V; ++v) {
      const double a = p[v].value, b = q[v].value;
      const double log_m = c.beta == 0   ? a
                           : c.beta == 1 ? b
                                         : std::log((1 - c.beta) * std::exp(a) + c.beta * std::exp(b));
      r[v] = a - log_m;
      size_p += std::exp(a) * std::fabs(r[v]);
      size_q += std::exp(b) * std::fabs(b - log_m);
      k += std::exp(a) * r[v];
    }
    of[0][static_cast<size_t>(t)] = weight * ((size_p + size_q) * change + 4 * most + 4 * arithmetic) * 1.05;
    for (size_t v = 0; v < V; ++v) {
      const double p_v = std::exp(p[v].value), q_v = std::exp(q[v].value);
      const double share = c.beta == 0 || c.beta == 1 ? 1 : 1 - c.beta;
      const double d_z = c.beta == 0 ? p_v - q_v : share * p_v * (r[v] - k);
      double error =
          c.beta == 0 ? (p_v + q_v) * change
                      : share * p_v * (change * (std::fabs(r[v]) + std::fabs(k) + size_p) + 4 * most + 4 * arithmetic);
      // The cap's slope changes by at most 2 / cap times what its argument is off by.
      const double scale = weight / c.temperature, uncapped = scale * std::fabs(d_z);
      error =
          scale * error * slope[v] + (cap > 0 ? uncapped * (2 * off_x[v] / cap + 24 * u32) : 0) + 4 * u32 * uncapped;
      const double d = uncapped * slope[v];
      error = 1.05 * error + 1.01 * u * d;
      if (o.d_bias >= 0) of[static_cast<size_t>(o.d_bias)][v] += error + steps * d;
      for (size_t pair = 0; pair < o.num_pairs; ++pair) {
        const LossOperands::Pair& at = o.pairs[pair];
        const TestTensor &x = in[static_cast<size_t>(at.x)], &w = in[static_cast<size_t>(at.w)];
        const int64_t I = x.type().shape[1];
        for (int64_t i = 0; i < I; ++i) {
          const int64_t of_x = t * I + i, of_w = static_cast<int64_t>(v) * I + i;
          if (at.d_x >= 0) {
            of[static_cast<size_t>(at.d_x)][static_cast<size_t>(of_x)] +=
                (error + static_cast<double>(c.V + 4) * u32 * d) * std::fabs(w.Get(of_w));
          }
          if (at.d_w >= 0) {
            of[static_cast<size_t>(at.d_w)][static_cast<size_t>(of_w)] += (error + steps * d) * std::fabs(x.Get(of_x));
          }
        }
      }
    }
  }
}

TEST(LinearDistillation, MatchesTheScalarTwin) {
  for (const DistillCase& c : kCases) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const DistillRun run(c, dtype);
      const DistillBounds bounds(c, dtype, run);
      const TestTensors want = RunReference({Op::kLinearDistillation, run.attributes, &run.inputs});
      for (const Isa isa : RunnableIsas()) {
        if (isa == Isa::kScalar) continue;
        const std::string what =
            std::string(c.name) + " " + std::string(ToString(dtype)) + " on " + std::string(ToString(isa));
        const TestTensors one = RunFast({Op::kLinearDistillation, run.attributes, &run.inputs}, isa, 1);
        ASSERT_EQ(one.size(), want.size()) << what;
        for (size_t o = 0; o < want.size(); ++o) {
          ExpectNear(
              one[o], want[o], 2.02 * UnitRoundoff(want[o].type().dtype),
              [&](int64_t i) { return bounds.of[o][static_cast<size_t>(i)] + 1e-37; },
              what + " output " + std::to_string(o));
        }
        for (const int threads : {1, 3}) {
          const TestTensors again =
              RunFast({Op::kLinearDistillation, run.attributes, &run.inputs, run.in_place}, isa, threads);
          for (size_t o = 0; o < want.size(); ++o) {
            EXPECT_TRUE(again[o].SameBits(one[o])) << what << " output " << o << " threads " << threads;
          }
        }
      }
    }
  }
}

// So memory may decide how large it is.
TEST(LinearDistillation, TheSizeOfAChunkChangesNoBit) {
  const DistillCase c = {"", 300, 95, 70, 40, 0, 0.5, 1, 1.0};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const DistillRun run(c, dtype);
    for (const Isa isa : RunnableIsas()) {
      const TestTensors whole = RunFast({Op::kLinearDistillation, run.attributes, &run.inputs}, isa, 1);
      for (const int64_t chunk : {128, 64}) {
        Attributes cut = run.attributes;
        cut.Set("chunk", chunk);
        const TestTensors got = RunFast({Op::kLinearDistillation, cut, &run.inputs}, isa, 1);
        for (size_t o = 0; o < whole.size(); ++o) EXPECT_TRUE(got[o].SameBits(whole[o])) << "output " << o;
      }
    }
  }
}

// A teacher with the student's own numbers: neither a loss nor a gradient, whatever the divergence.
TEST(LinearDistillation, NothingIsLearnedFromOneself) {
  for (const double beta : {0.0, 0.5, 1.0}) {
    TestTensors inputs;
    inputs.push_back(RandomTensor({DType::kF32, {9, 16}}, 1));
    inputs.push_back(RandomTensor({DType::kF32, {40, 16}}, 2));
    inputs.emplace_back(TensorType{DType::kI32, {9}});
    for (int64_t t = 0; t < 9; ++t) inputs[2].Set(t, 3);
    inputs.push_back(inputs[0].Copy());
    inputs.push_back(inputs[1].Copy());
    const Attributes a = {{"beta", beta}, {"temperature", 1.0}, {"grad_x", int64_t{1}}};
    for (const Isa isa : RunnableIsas()) {
      const TestTensors got = RunFast({Op::kLinearDistillation, a, &inputs}, isa, 1);
      for (int64_t t = 0; t < 9; ++t) EXPECT_NEAR(got[0].Get(t), 0, 2e-6) << beta;
      for (int64_t i = 0; i < 9 * 16; ++i) EXPECT_NEAR(got[1].Get(i), 0, 2e-6) << beta;
    }
  }
}

}  // namespace
}  // namespace temper::linear_distillation_test
