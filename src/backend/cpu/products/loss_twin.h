// For tests of linear_cross_entropy: cases, their operands, and bounds on the rounding of their outputs.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/cpu/kernel_twin.h"
#include "graph/ops/loss_operands.h"

namespace temper {

struct LossCase {
  const char* name;
  int64_t T, V, D, R;  // R = 0: no second pair
  double supervised;   // fraction of tokens
  int64_t chunk;
  bool grad_x, grad_w, grad_x2, grad_w2, acc;
  bool weighted = false;
  double softcap = 0;
  double smoothing = 0;
  bool bias = false, grad_bias = false;
  bool correct = false;
};

inline constexpr LossCase kLossCases[] = {
    {"all gradients", 37, 101, 24, 0, 0.7, 512, true, true, false, false, false},
    {"accumulated, several chunks", 61, 70, 33, 0, 0.8, 16, true, true, false, false, true},
    {"only d_x", 20, 300, 64, 0, 1.0, 8, true, false, false, false, false},
    {"only d_w", 20, 65, 40, 0, 1.0, 512, false, true, false, false, true},
    {"loss alone", 30, 129, 32, 0, 0.5, 512, false, false, false, false, false},
    {"LoRA on the head, base frozen", 50, 90, 48, 8, 0.6, 20, true, false, true, true, true},
    {"LoRA on the head, all trained", 33, 47, 20, 5, 0.9, 512, true, true, true, true, false},
    {"one token", 1, 33, 16, 0, 1.0, 512, true, true, false, false, false},
    {"nothing supervised", 9, 40, 16, 0, 0.0, 512, true, true, false, false, true},
    {"nothing supervised, nothing accumulated", 9, 40, 16, 0, 0.0, 512, true, true, false, false, false},
    {"several pieces of words", 7, 4500, 8, 0, 0.9, 512, true, true, false, false, true},
    {"one word", 5, 1, 8, 0, 1.0, 512, true, true, false, false, false},
    {"weighted", 61, 70, 33, 0, 0.8, 16, true, true, false, false, true, true},
    {"weighted, several pieces of words", 7, 4500, 8, 0, 0.9, 512, true, true, false, false, false, true},
    {"weighted, LoRA on the head", 50, 90, 48, 8, 0.6, 20, true, false, true, true, true, true},
    {"weighted, loss alone", 30, 129, 32, 0, 0.5, 512, false, false, false, false, false, true},
    {"capped, weighted", 61, 70, 33, 0, 0.8, 16, true, true, false, false, true, true, 0.5},
    {"capped, several pieces of words", 7, 4500, 8, 0, 0.9, 512, true, true, false, false, true, false, 2.0},
    {"capped, LoRA on the head", 50, 90, 48, 8, 0.6, 20, true, false, true, true, true, false, 1.0},
    {"capped, loss alone", 30, 129, 32, 0, 0.5, 512, false, false, false, false, false, false, 1.0},
    {"smooth", 37, 101, 24, 0, 0.7, 512, true, true, false, false, false, false, 0, 0.1},
    {"smooth, several pieces of words", 7, 4500, 8, 0, 0.9, 512, true, true, false, false, true, true, 0, 0.3},
    {"smooth, capped, LoRA on the head", 50, 90, 48, 8, 0.6, 20, true, false, true, true, true, true, 1.0, 0.2},
    {"smooth, loss alone", 30, 129, 32, 0, 0.5, 512, false, false, false, false, false, false, 0, 0.9},
    {"bias", 37, 101, 24, 0, 0.7, 512, true, true, false, false, false, false, 0, 0, true, true},
    {"bias, accumulated", 61, 70, 33, 0, 0.8, 16, true, true, false, false, true, true, 0, 0, true, true},
    {"bias, LoRA on the head", 50, 90, 48, 8, 0.6, 20, true, false, true, true, true, false, 0, 0, true, false},
    {"bias, all trained", 33, 47, 20, 5, 0.9, 8, true, true, true, true, true, true, 1.0, 0.2, true, true},
    {"bias, several pieces of words", 7, 4500, 8, 0, 0.9, 512, false, true, false, false, true, false, 0, 0, true,
     true},
    {"bias alone", 20, 300, 64, 0, 1.0, 8, false, false, false, false, false, false, 0, 0, true, true},
    {"bias, loss alone", 30, 129, 32, 0, 0.5, 512, false, false, false, false, false, false, 0, 0, true, false},
    {"bias, nothing supervised", 9, 40, 16, 0, 0.0, 512, true, true, false, false, true, false, 0, 0, true, true},
    {"ranked", 37, 101, 24, 0, 0.7, 512, true, true, false, false, false, false, 0, 0, false, false, true},
    {"ranked, several chunks, weighted, capped, smooth", 61, 70, 33, 0, 0.8, 16, true, true, false, false, true, true,
     0.5, 0.1, false, false, true},
    {"ranked, several pieces of words", 7, 4500, 8, 0, 0.9, 512, false, false, false, false, false, true, 0, 0, false,
     false, true},
    {"ranked, LoRA on the head, bias", 50, 90, 48, 8, 0.6, 20, true, false, true, true, true, false, 0, 0, true, true,
     true},
    {"ranked, nothing supervised", 9, 40, 16, 0, 0.0, 512, true, true, false, false, true, false, 0, 0, false, false,
     true},
    {"ranked, one word", 5, 1, 8, 0, 1.0, 512, true, true, false, false, false, false, 0, 0, false, false, true},
    {"bias, nothing accumulated", 9, 40, 16, 0, 0.0, 512, true, true, false, false, false, false, 0, 0, true, true},
};

// The most that rounding can change each output by, from the operands in double.
struct LossBounds {
  std::vector<double> loss, d_x[2], d_w[2], d_bias;
  std::vector<double> correct;     // 0, or the weight where two logits are as good as equal
  std::vector<double> x_terms[2];  // the sum of magnitudes in each d_x
};

inline LossBounds LossBoundsOf(const LossCase& c, DType dtype, const TestTensors& in) {
  const double u = UnitRoundoff(dtype), u32 = UnitRoundoff(DType::kF32);
  const int pairs = c.R > 0 ? 2 : 1;
  const int64_t depth[2] = {c.D, c.R};
  const LossOperands places(
      {{"pair2", int64_t{c.R > 0}}, {"bias", int64_t{c.bias}}, {"weighted", int64_t{c.weighted}}});
  const int weight_at = places.weight, bias_at = places.bias;
  LossBounds b;
  b.loss.resize(static_cast<size_t>(c.T));
  b.correct.resize(static_cast<size_t>(c.T));
  b.d_bias.resize(static_cast<size_t>(c.V));
  for (int p = 0; p < pairs; ++p) {
    b.d_x[p].resize(static_cast<size_t>(c.T * depth[p]));
    b.x_terms[p].resize(static_cast<size_t>(c.T * depth[p]));
    b.d_w[p].resize(static_cast<size_t>(c.V * depth[p]));
  }
  const auto V = static_cast<size_t>(c.V);
  for (int64_t t = 0; t < c.T; ++t) {
    const auto target = static_cast<int64_t>(in[2].Get(t));
    if (target < 0) continue;
    const double weight = weight_at < 0 ? 1 : in[static_cast<size_t>(weight_at)].Get(t);
    // A logit is off by its f32 sum and a rounding per pair (of the part, then of the whole).
    std::vector<double> logit(V), off(V);
    for (int64_t v = 0; v < c.V; ++v) {
      double magnitude = 0, rounded = 0;
      for (int p = pairs - 1; p >= 0; --p) {
        const TestTensor &x = in[p ? 3 : 0], &w = in[p ? 4 : 1];
        for (int64_t i = 0; i < depth[p]; ++i) {
          const double term = x.Get(t * depth[p] + i) * w.Get(v * depth[p] + i);
          logit[static_cast<size_t>(v)] += term;
          magnitude += std::fabs(term);
        }
        if (p == 0 && bias_at >= 0) {
          const double bias = in[static_cast<size_t>(bias_at)].Get(v);
          logit[static_cast<size_t>(v)] += bias;
          magnitude += std::fabs(bias);
        }
        rounded += std::fabs(logit[static_cast<size_t>(v)]);
      }
      off[static_cast<size_t>(v)] = 1.01 * u * rounded + static_cast<double>(c.D + c.R + 4) * u32 * magnitude;
    }
    // The target among the largest: only where it is as near to the best of the others as both are off.
    double of_others = -INFINITY;
    for (size_t v = 0; v < V; ++v) {
      if (static_cast<int64_t>(v) != target) of_others = std::max(of_others, logit[v]);
    }
    const double in_doubt = 2 * *std::max_element(off.begin(), off.end());
    if (std::fabs(logit[static_cast<size_t>(target)] - of_others) <= in_doubt)
      b.correct[static_cast<size_t>(t)] = weight;
    // A cap is no steeper than 1. It adds its own: tanh within 6u, and four roundings of its argument and of its
    // product.
    std::vector<double> slope(V, 1.0);
    for (size_t v = 0; v < V && c.softcap > 0; ++v) {
      const double tanh = std::tanh(logit[v] / c.softcap);
      logit[v] = c.softcap * tanh;
      slope[v] = 1 - tanh * tanh;
      off[v] += 10 * u32 * std::fabs(logit[v]);
    }
    const double largest = *std::max_element(logit.begin(), logit.end());
    const double most = *std::max_element(off.begin(), off.end());
    double sum = 0, size_of_logits = 0;
    for (double l : logit) {
      sum += std::exp(l - largest);
      size_of_logits += std::fabs(l);
    }
    // exp within 4 roundings (in bf16 3e-6, twice: a piece's and its factor's), its f32 argument within one of the
    // largest difference, a sum of V / 16 or so of them.
    const double exp_error =
        (static_cast<double>(c.V) / 8 + 40 + 4 * std::fabs(largest)) * u32 + (dtype == DType::kBF16 ? 6e-6 : 0);
    b.loss[static_cast<size_t>(t)] = weight * (2 * most + exp_error + 4 * u32 * std::fabs(largest));
    // The sum of logits, by 8 or more lanes.
    const double V32 = static_cast<double>(c.V);
    b.loss[static_cast<size_t>(t)] += weight * c.smoothing * (V32 / 8 + 40) * u32 * size_of_logits / V32;
    for (int64_t v = 0; v < c.V; ++v) {
      const double p_v = std::exp(logit[static_cast<size_t>(v)] - largest) / sum;
      const double label = (v == target ? 1 - c.smoothing : 0) + c.smoothing / static_cast<double>(c.V);
      const double uncapped = weight * std::fabs(p_v - label), d = uncapped * slope[static_cast<size_t>(v)];
      // A weight adds a rounding of its product with p, and one of that with the target's.
      double error =
          weight * (p_v * (std::exp(2 * most) - 1 + exp_error) * 1.01 + (c.weighted || c.smoothing > 0 ? 4 : 2) * u32) +
          1.01 * u * d;
      // The cap's slope changes by at most 2 / cap times what its argument is off by.
      if (c.softcap > 0) error += uncapped * (2 * off[static_cast<size_t>(v)] / c.softcap + 24 * u32);
      b.d_bias[static_cast<size_t>(v)] += error + static_cast<double>(c.T + 4) * u32 * d;
      for (int p = 0; p < pairs; ++p) {
        const TestTensor &x = in[p ? 3 : 0], &w = in[p ? 4 : 1];
        for (int64_t i = 0; i < depth[p]; ++i) {
          const double w_vi = std::fabs(w.Get(v * depth[p] + i)), x_ti = std::fabs(x.Get(t * depth[p] + i));
          b.d_x[p][static_cast<size_t>(t * depth[p] + i)] += (error + static_cast<double>(c.V + 4) * u32 * d) * w_vi;
          b.x_terms[p][static_cast<size_t>(t * depth[p] + i)] += d * w_vi;
          b.d_w[p][static_cast<size_t>(v * depth[p] + i)] += (error + static_cast<double>(c.T + 4) * u32 * d) * x_ti;
        }
      }
    }
  }
  return b;
}

// Operands of a case, and what is known of its outputs.
struct LossRun {
  LossRun(const LossCase& c, DType dtype);
  LossRun(const LossRun&) = delete;  // has pointers into itself

  Attributes attributes;
  TestTensors inputs;
  std::vector<std::pair<int, int>> in_place;  // d_w over acc
  LossBounds bounds;
  // Whether output `o` is one value a token, alike on ranks that share the vocabulary.
  bool is_of_tokens(size_t o) const { return bound_of[o] == &bounds.loss || bound_of[o] == &bounds.correct; }

  // Per output.
  std::vector<const std::vector<double>*> bound_of;
  std::vector<const std::vector<double>*> terms_of;  // of a d_x, else nullptr
  std::vector<int> acc_of;                           // the input that its sum begins with, or -1
  int64_t tokens = 0;                                // each rounds that sum once

  // The most that output `o` may be off by, besides its own rounding.
  double Bound(size_t o, int64_t i) const {
    const double acc = acc_of[o] >= 0 ? std::fabs(inputs[static_cast<size_t>(acc_of[o])].Get(i)) : 0;
    return (*bound_of[o])[static_cast<size_t>(i)] + static_cast<double>(tokens + 4) * UnitRoundoff(DType::kF32) * acc +
           1e-37;
  }
};

// Every second target becomes the word of its row's largest logit. `bias`: nullptr for none.
inline void AimAtLargest(const LossCase& c, const TestTensors& in, const TestTensor* bias, TestTensor* target_T) {
  for (int64_t t = 0; t < c.T; t += 2) {
    if (target_T->Get(t) < 0) continue;
    double largest = -INFINITY;
    for (int64_t v = 0; v < c.V; ++v) {
      double logit = bias == nullptr ? 0 : bias->Get(v);
      for (int64_t i = 0; i < c.D; ++i) logit += in[0].Get(t * c.D + i) * in[1].Get(v * c.D + i);
      for (int64_t i = 0; i < c.R; ++i) logit += in[3].Get(t * c.R + i) * in[4].Get(v * c.R + i);
      if (logit <= largest) continue;
      largest = logit;
      target_T->Set(t, static_cast<double>(v));
    }
  }
}

inline LossRun::LossRun(const LossCase& c, DType dtype)
    : attributes({{"pair2", int64_t{c.R > 0}},
                  {"weighted", int64_t{c.weighted}},
                  {"chunk", c.chunk},
                  {"grad_x", int64_t{c.grad_x}},
                  {"grad_w", int64_t{c.grad_w}},
                  {"grad_x2", int64_t{c.grad_x2}},
                  {"grad_w2", int64_t{c.grad_w2}},
                  {"acc_w", int64_t{c.acc && c.grad_w}},
                  {"acc_w2", int64_t{c.acc && c.grad_w2}}}),
      tokens(c.T) {
  if (c.bias) attributes.Set("bias", int64_t{1});
  if (c.correct) attributes.Set("correct", int64_t{1});
  if (c.grad_bias) attributes.Set("grad_bias", int64_t{1});
  if (c.grad_bias && c.acc) attributes.Set("acc_bias", int64_t{1});
  if (c.softcap > 0) attributes.Set("softcap", c.softcap);
  if (c.smoothing > 0) attributes.Set("smoothing", c.smoothing);
  inputs.push_back(RandomTensor({dtype, {c.T, c.D}}, 1));
  inputs.push_back(RandomTensor({dtype, {c.V, c.D}}, 2, 0.5));
  TestTensor target({DType::kI32, {c.T}});
  std::mt19937 engine(3);
  for (int64_t t = 0; t < c.T; ++t) {
    const bool supervised = std::uniform_real_distribution<double>(0, 1)(engine) < c.supervised;
    target.Set(t, supervised ? static_cast<double>(engine() % static_cast<uint32_t>(c.V)) : -1);
  }
  inputs.push_back(std::move(target));
  if (c.R > 0) {
    inputs.push_back(RandomTensor({dtype, {c.T, c.R}}, 4));
    inputs.push_back(RandomTensor({dtype, {c.V, c.R}}, 5, 0.5));
  }
  if (c.bias) inputs.push_back(RandomTensor({dtype, {c.V}}, 7));
  if (c.correct) AimAtLargest(c, inputs, c.bias ? &inputs.back() : nullptr, &inputs[2]);
  if (c.weighted) {  // multiples of 2^-16, some of them 0
    TestTensor weight({DType::kF32, {c.T}});
    for (int64_t t = 0; t < c.T; ++t) {
      weight.Set(t, engine() % 8 == 0 ? 0 : static_cast<double>(engine() % (4 << 16)) / (1 << 16));
    }
    inputs.push_back(std::move(weight));
  }
  const bool grad_x[] = {c.grad_x, c.grad_x2}, grad_w[] = {c.grad_w, c.grad_w2};
  bounds = LossBoundsOf(c, dtype, inputs);
  const auto add = [&](const std::vector<double>* bound, const std::vector<double>* terms) {
    bound_of.push_back(bound);
    terms_of.push_back(terms);
    acc_of.push_back(-1);
  };
  add(&bounds.loss, nullptr);
  if (c.correct) add(&bounds.correct, nullptr);
  const auto add_sum = [&](const std::vector<double>* bound, Shape shape) {
    add(bound, nullptr);
    if (!c.acc) return;
    acc_of.back() = static_cast<int>(inputs.size());
    in_place.emplace_back(static_cast<int>(bound_of.size()) - 1, static_cast<int>(inputs.size()));
    inputs.push_back(RandomTensor({DType::kF32, shape}, 6));
  };
  for (int p = 0; p < 2; ++p) {
    if (grad_x[p]) add(&bounds.d_x[p], &bounds.x_terms[p]);
    if (grad_w[p]) add_sum(&bounds.d_w[p], {c.V, p ? c.R : c.D});
  }
  if (c.grad_bias) add_sum(&bounds.d_bias, {c.V});
}

// With a head of int8 rows, and the same with their numbers in bf16. REQUIRES: the case has no gradient of w.
inline void KeepHeadAsInt8(const LossCase& c, LossRun* kept, LossRun* values) {
  kept->inputs[1] = RandomQuantised(ElementFormat::Int8Rows(), {c.V, c.D}, 2, 0.5);
  values->inputs[1] = InBf16(kept->inputs[1]);
  kept->bounds = LossBoundsOf(c, DType::kBF16, kept->inputs);
}

// Operands of token_logprob in a run of linear_cross_entropy without weights.
struct LogprobRun {
  explicit LogprobRun(const LossRun& loss)
      : attributes({{"pair2", int64_t{loss.attributes.Flag("pair2")}}, {"chunk", loss.attributes.Int("chunk")}}) {
    if (loss.attributes.Has("softcap")) attributes.Set("softcap", loss.attributes.Double("softcap"));
    if (loss.attributes.Flag("bias")) attributes.Set("bias", int64_t{1});
    const auto n = static_cast<size_t>(LossOperands(attributes).num_inputs);
    for (size_t i = 0; i < n; ++i) inputs.push_back(loss.inputs[i].Copy());
  }
  Attributes attributes;
  TestTensors inputs;
};

}  // namespace temper
