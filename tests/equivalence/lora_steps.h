// What steps of LoRA leave behind that must not depend on how the base is kept.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../tiny_run.h"

namespace temper::tiny {

struct LoraOutcome {
  std::vector<float> losses;  // of three steps and an evaluation
  std::vector<double> norms;
  std::map<std::string, std::vector<std::byte>> adapters;
  std::vector<Buffer> weights;  // as the Program keeps them
};

inline LoraOutcome TrainLora(const RunSpec& spec) {
  TinyRun run(spec);
  LoraOutcome o;
  const auto add_losses = [&] { o.losses.insert(o.losses.end(), run.losses().begin(), run.losses().end()); };
  for (uint64_t step = 0; step < 3; ++step) {
    Batch batch = run.MakeBatch(step);
    run.Step(batch);
    add_losses();
    o.norms.push_back(run.grad_norm());
  }
  Batch held_out = run.MakeBatch(100);
  run.Evaluate(held_out);
  add_losses();
  for (const Buffer& b : run.train().buffers) {
    if (b.role == Role::kAdapter) o.adapters[b.name] = run.BytesOf(b);
    if (b.role == Role::kWeight) o.weights.push_back(b);
  }
  return o;
}

inline void ExpectSameResults(const LoraOutcome& a, const LoraOutcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.adapters, b.adapters);
}

}  // namespace temper::tiny
