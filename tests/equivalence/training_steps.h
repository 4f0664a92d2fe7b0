// What steps of training leave behind, of which much must not depend on how values are kept.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../tiny_run.h"
#include "graph/named_ops.h"

namespace temper::tiny {

struct Outcome {
  std::vector<float> losses;  // of two steps and an evaluation
  std::vector<double> norms;
  std::map<std::string, std::vector<std::byte>> trained;  // weights or adapters, and states
  std::vector<Buffer> buffers;                            // as the Program keeps them
  int packings = 0;                                       // instructions that pack an operand
};

inline Outcome Train(const RunSpec& spec) {
  TinyRun run(spec);
  Outcome o;
  const auto add_losses = [&] { o.losses.insert(o.losses.end(), run.losses().begin(), run.losses().end()); };
  for (uint64_t step = 0; step < 2; ++step) {
    Batch batch = run.MakeBatch(step);
    run.Step(batch);
    add_losses();
    o.norms.push_back(run.grad_norm());
  }
  Batch held_out = run.MakeBatch(100);
  run.Evaluate(held_out);
  add_losses();
  o.buffers = run.train().buffers;
  for (const Buffer& b : o.buffers) {
    const bool keeps = b.role == Role::kWeight || b.role == Role::kAdapter || b.role == Role::kOptimizerState;
    if (keeps && !IsFrozen(b)) o.trained[b.name] = run.BytesOf(b);
  }
  for (const Segment& segment : run.train().segments) {
    for (const Instruction& i : segment.instructions) o.packings += i.op == Op::kCast && i.attributes.Has("layout");
  }
  return o;
}

inline void ExpectSameResults(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.trained, b.trained);
}

}  // namespace temper::tiny
