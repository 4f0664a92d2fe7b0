// For tests of attention_step: rings of ranks, and the data of each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/attention/attention_bounds.h"
#include "tensor/context_part.h"

namespace temper {

struct StepCase {
  const char* name;
  int64_t ranks, row;
  std::vector<int64_t> documents;  // lengths; they fill whole rows
  int64_t heads, kv_heads, E, window;
  double spread = 1;  // of q and k
  double softcap = 0;
};

inline const std::vector<StepCase>& StepCases() {
  static const std::vector<StepCase> cases = {
      {"one document", 2, 64, {64}, 2, 1, 32, 0},
      {"chunks of one token", 3, 6, {6, 2, 4}, 2, 2, 16, 0},
      {"chunks that end within a block", 2, 440, {440}, 4, 2, 64, 0},
      {"documents across chunks", 2, 120, {25, 50, 1, 44, 120, 119, 1}, 6, 2, 32, 0},
      {"over tiles of 128 queries and keys", 2, 288, {200, 88}, 2, 1, 16, 0},
      {"a window within and across chunks", 2, 160, {160, 30, 130}, 2, 2, 48, 37},
      {"a window, short rows", 2, 80, {80, 30, 50}, 2, 2, 48, 21},
      {"a window of one", 2, 40, {40}, 2, 1, 16, 1},
      {"several segments of queries", 2, 1080, {1080}, 1, 1, 16, 0},
      {"four ranks, grouped, odd head_dim", 4, 160, {90, 70}, 8, 2, 80, 0},
      {"heads of 128", 2, 160, {100, 60}, 1, 1, 128, 0},
      {"head_dim 256", 2, 96, {96}, 1, 1, 256, 0},
      {"head_dim 512", 2, 72, {72}, 1, 1, 512, 0},
      {"sharp", 2, 200, {200}, 2, 1, 64, 0, 6.0},
      {"capped, with a window", 2, 120, {25, 95}, 2, 1, 64, 50, 3.0, 2.0},
  };
  return cases;
}

// The data of rank `index` of a case, and where its queries see keys of another rank.
struct StepScene {
  AttentionShape shape;
  Attributes attributes;
  ContextPart queries, keys;
  std::vector<int64_t> starts;  // per local token: place of its document's first
  TestTensor q, k, v, document_start;

  std::pair<int64_t, int64_t> Seen(int64_t t) const {
    const int64_t place = queries.PlaceOf(t), window = attributes.Int("window");
    const int64_t start = starts[static_cast<size_t>(t)];
    const int64_t first = keys.LocalFrom(window > 0 ? std::max(start, place - window + 1) : start);
    return {first, std::max(first, keys.LocalFrom(place + 1))};
  }
};

inline StepScene SceneOf(const StepCase& c, DType dtype, int64_t index, int64_t origin) {
  std::vector<int64_t> start_of;
  for (int64_t n : c.documents)
    start_of.insert(start_of.end(), static_cast<size_t>(n), static_cast<int64_t>(start_of.size()));
  const ContextPart queries{c.row, c.ranks, index}, keys{c.row, c.ranks, origin};
  const int64_t T = static_cast<int64_t>(start_of.size()) / c.ranks;
  const double scale = 1 / std::sqrt(static_cast<double>(c.E));
  StepScene s{{T, c.heads, c.kv_heads, c.E, scale, c.softcap},
              {{"heads", c.heads},
               {"kv_heads", c.kv_heads},
               {"window", c.window},
               {"scale", scale},
               {"row", c.row},
               {"ranks", c.ranks},
               {"index", index},
               {"origin", origin},
               {"acc", int64_t{index != origin}}},
              queries,
              keys,
              {},
              RandomTensor({dtype, {T, c.heads * c.E}}, 1, c.spread),
              RandomTensor({dtype, {T, c.kv_heads * c.E}}, 2, c.spread),
              RandomTensor({dtype, {T, c.kv_heads * c.E}}, 3),
              TestTensor({DType::kI32, {T}})};
  if (c.softcap > 0) s.attributes.Set("softcap", c.softcap);
  for (int64_t t = 0; t < T; ++t) {
    s.starts.push_back(start_of[static_cast<size_t>(queries.PlaceOf(t))]);
    s.document_start.Set(t, static_cast<double>(s.starts.back()));
  }
  return s;
}

// Calls body(scene, name) for each pair of ranks, on the first and the last of the queries' ranks.
template <class Body>
void ForEachScene(DType dtype, const Body& body) {
  for (const StepCase& c : StepCases()) {
    for (const int64_t index : {int64_t{0}, c.ranks - 1}) {
      for (int64_t origin = 0; origin < c.ranks; ++origin) {
        body(SceneOf(c, dtype, index, origin), std::string(c.name) + " " + std::string(ToString(dtype)) + ", rank " +
                                                   std::to_string(index) + " on the keys of " + std::to_string(origin));
      }
    }
  }
}
template <class Body>
void ForEachScene(const Body& body) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) ForEachScene(dtype, body);
}

// Sums from other keys, with an lse such that neither they nor these keys decide alone.
inline TestTensors Before(const StepScene& s) {
  TestTensors before;
  if (!s.attributes.Flag("acc")) return before;
  before.push_back(RandomTensor({DType::kF32, s.q.type().shape}, 4));
  before.push_back(RandomTensor({DType::kF32, {s.shape.tokens, s.shape.heads}}, 5, 3.0));
  return before;
}

inline TestTensors Copies(std::initializer_list<const TestTensor*> tensors) {
  TestTensors copies;
  for (const TestTensor* t : tensors) copies.push_back(t->Copy());
  return copies;
}

}  // namespace temper
