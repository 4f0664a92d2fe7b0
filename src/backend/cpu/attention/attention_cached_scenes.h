// For tests of attention_cached: steps of several sequences over one cache, the twin's results, and how far a kernel's
// may be from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/kernel_twin.h"
#include "graph/named_ops.h"
#include "graph/ops/attention_cache.h"

namespace temper {

struct CachedCase {
  const char* name;
  int64_t heads, kv_heads, E, window;
  int64_t slots;
  // Of each step its runs: tokens that the sequence in a slot gets behind those it has; slot -1: that stand for
  // nothing.
  std::vector<std::vector<std::pair<int64_t, int64_t>>> steps;
  double softcap = 0;
  int64_t W = 0;  // of v; 0: E
  bool sink = false;
  double slope = 0;  // ALiBi: of head h, slope / (h + 1), rounded where values have a width of their own

  int64_t v_width() const { return W > 0 ? W : E; }
};

inline std::vector<CachedCase> CachedCases() {
  return {
      {"one token", 4, 2, 32, 0, 1, {{{0, 1}}, {{0, 1}}, {{0, 1}}}},
      {"a prompt, then tokens", 6, 2, 64, 0, 1, {{{0, 130}}, {{0, 1}}, {{0, 1}}, {{0, 7}}}},
      {"beyond a piece of keys", 4, 1, 16, 0, 1, {{{0, 500}}, {{0, 30}}, {{0, 1}}}},
      {"three sequences that come and go",
       4,
       2,
       48,
       0,
       3,
       {{{1, 70}}, {{0, 5}, {1, 1}, {-1, 2}}, {{2, 33}, {1, 1}, {0, 1}}, {{0, 1}, {1, 1}, {2, 1}, {-1, 5}}}},
      {"a window", 12, 2, 16, 9, 2, {{{0, 31}, {1, 2}}, {{0, 2}, {1, 1}}, {{1, 40}}}},
      {"a wide window", 2, 1, 16, 45, 1, {{{0, 20}}, {{0, 550}}, {{0, 1}}}},
      {"many heads for one", 16, 1, 32, 0, 2, {{{0, 60}}, {{1, 1}, {0, 1}}}},
      {"head_dim 256, capped", 4, 2, 256, 0, 1, {{{0, 60}}, {{0, 1}}}, 1.0},
      {"head_dim 512", 4, 1, 512, 0, 2, {{{0, 60}, {1, 3}}, {{0, 1}, {1, 1}}}},
      {"capped, window", 2, 1, 64, 20, 1, {{{0, 60}}, {{0, 7}}}, 0.5},
      {"keys wider than values, a sink", 16, 2, 192, 0, 2, {{{0, 60}, {1, 3}}, {{0, 1}, {1, 1}}}, 0, 128, true},
      {"values wider than keys, a sink, window", 4, 2, 64, 9, 1, {{{0, 3}}, {{0, 40}}, {{0, 1}}}, 0, 80, true},
      {"slopes, many heads for one", 16, 1, 32, 0, 2, {{{0, 60}}, {{1, 1}, {0, 1}}}, 0, 0, false, 0.5},
      {"rounded slopes", 3, 3, 48, 0, 1, {{{0, 300}}, {{0, 1}}}, 0, 80, false, 0.71},
  };
}

inline Attributes AttributesOf(const CachedCase& c) {
  Attributes a = {{"heads", c.heads},
                  {"kv_heads", c.kv_heads},
                  {"window", c.window},
                  {"page", kCachePage},
                  {"scale", 1 / std::sqrt(static_cast<double>(c.E))}};
  if (c.softcap > 0) a.Set("softcap", c.softcap);
  if (c.sink) a.Set("sink", int64_t{1});
  if (c.slope == 0) return a;
  std::vector<double> slopes;
  for (int64_t h = 0; h < c.heads; ++h) slopes.push_back(c.slope / static_cast<double>(h + 1));
  a.Set("slopes", std::move(slopes));
  if (c.W > 0) a.Set("rounded_slopes", int64_t{1});
  return a;
}

// The inputs of a case's steps, one step after the other. What a token's operands are depends on its slot and its place
// alone, so that any other steps may make the same sequences.
class CachedSteps {
 public:
  CachedSteps(const CachedCase& c, DType dtype) : c_(c), dtype_(dtype), lengths_(static_cast<size_t>(c.slots)) {
    std::vector<int64_t> total(lengths_.size());
    for (const auto& step : c.steps) {
      for (const auto& [slot, tokens] : step) {
        if (slot >= 0) total[static_cast<size_t>(slot)] += tokens;
      }
    }
    pages_ = CachePagesOf(*std::max_element(total.begin(), total.end()));
  }

  int64_t length(int64_t slot) const { return lengths_[static_cast<size_t>(slot)]; }
  // Caches in which nothing has been written: NaN.
  std::pair<TestTensor, TestTensor> Caches() const {
    const int64_t rows = c_.slots * pages_ * kCachePage;
    return {TestTensor(KeyCacheType(dtype_, rows, c_.kv_heads, c_.E)),
            TestTensor(ValueCacheType(dtype_, rows, c_.kv_heads, c_.v_width()))};
  }
  // The next step over these caches, of those runs. `absolute`: with |v|.
  TestTensors Next(const std::vector<std::pair<int64_t, int64_t>>& runs, const TestTensor& k_cache,
                   const TestTensor& v_cache, bool absolute = false) {
    int64_t S = 0;
    for (const auto& [slot, tokens] : runs) S += tokens;
    const int64_t widths[] = {c_.heads * c_.E, c_.kv_heads * c_.E, c_.kv_heads * c_.v_width()};
    TestTensors inputs;
    for (const int64_t width : widths) inputs.emplace_back(TensorType{dtype_, {S, width}});
    inputs.push_back(k_cache.Copy());
    inputs.push_back(v_cache.Copy());
    for (int i = 0; i < 2; ++i) inputs.emplace_back(TensorType{DType::kI32, {S}});
    inputs.emplace_back(TensorType{DType::kI32, {c_.slots, pages_}});
    int64_t at = 0;
    for (const auto& [slot, tokens] : runs) {
      for (int64_t i = 0; i < tokens; ++i, ++at) {
        const int64_t place = slot < 0 ? 0 : lengths_[static_cast<size_t>(slot)]++;
        inputs[5].Set(at, static_cast<double>(slot));
        inputs[6].Set(at, static_cast<double>(place));
        for (size_t o = 0; o < 3; ++o) {
          const auto seed = static_cast<uint32_t>(((slot + 1) * 3 + static_cast<int64_t>(o)) * 4096 + place);
          const TestTensor row = RandomTensor({dtype_, {1, widths[o]}}, seed);
          for (int64_t e = 0; e < widths[o]; ++e) {
            inputs[o].Set(at * widths[o] + e, absolute && o == 2 ? std::fabs(row.Get(e)) : row.Get(e));
          }
        }
      }
    }
    // Pages lie anywhere, and those that hold nothing are named by none.
    for (int64_t slot = 0; slot < c_.slots; ++slot) {
      for (int64_t p = 0; p < pages_; ++p) {
        const bool used = p < CachePagesOf(length(slot));
        inputs[7].Set(slot * pages_ + p, used ? static_cast<double>((pages_ - 1 - p) * c_.slots + slot) : -1);
      }
    }
    if (c_.sink) inputs.push_back(RandomTensor({dtype_, {c_.heads}}, 9, 3));
    return inputs;
  }

 private:
  const CachedCase& c_;
  const DType dtype_;
  std::vector<int64_t> lengths_;
  int64_t pages_ = 0;
};

// What the twin makes of each step, and of the values' magnitudes.
struct CachedTwin {
  std::vector<TestTensors> inputs;
  std::vector<TestTensor> o, magnitude;
  std::vector<std::pair<TestTensor, TestTensor>> caches;  // after each step
};
inline CachedTwin TwinOf(const CachedCase& c, DType dtype) {
  CachedTwin twin;
  for (const bool absolute : {false, true}) {
    CachedSteps steps(c, dtype);
    auto [k, v] = steps.Caches();
    for (const auto& runs : c.steps) {
      TestTensors inputs = steps.Next(runs, k, v, absolute);
      TestTensors out = RunReference({Op::kAttentionCached, AttributesOf(c), &inputs});
      k = std::move(out[1]);
      v = std::move(out[2]);
      (absolute ? twin.magnitude : twin.o).push_back(std::move(out[0]));
      if (absolute) continue;
      twin.inputs.push_back(std::move(inputs));
      twin.caches.emplace_back(k.Copy(), v.Copy());
    }
  }
  return twin;
}

// Relative to the magnitude: of the exponentials and their scores, and in bf16 of rounded probabilities.
inline double CachedError(const CachedCase& c, DType dtype) {
  return (dtype == DType::kBF16 ? 1.01 * UnitRoundoff(dtype) + 1.5e-5 : 0) +
         64 * static_cast<double>(c.E + 8) * UnitRoundoff(DType::kF32);
}

}  // namespace temper
