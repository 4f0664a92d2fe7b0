// The update of a training step: clipping, and an optimizer's op for every trainable value.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/update_rule.h"
#include "tensor/mesh.h"

namespace temper {

// How some of the trained values are updated, where others are not.
struct UpdateGroup {
  double lr_factor = 1;        // times the step's learning rate
  double weight_decay = 0;     // of values that decay (Value::decays)
  bool of_the_others = false;  // by the optimizer of values that the run's does not take (UpdateRule::others)
  friend bool operator==(const UpdateGroup&, const UpdateGroup&) = default;
};

// The new weights' share of their moving average: f64[1], written before each step where averages are kept.
inline constexpr char kAverageShareBuffer[] = "average_share";

// Seed and step of the draws by which weights are rounded: i64[kNumRngWords], written before each step where they are.
inline constexpr char kRoundingBuffer[] = "rounding_rng";

struct UpdateSpec {
  const UpdateRule* rule = &DefaultUpdateRule();
  Attributes settings = rule->Settings();
  Attributes settings_of_others = {};  // of rule->others(), if there is one
  double weight_decay = 0;             // of values that decay (Value::decays)
  double max_norm = 1.0;               // 0: no clipping
  double ema_decay = 0;                // of the weights' moving average; 0: none is kept
  // Weights in bf16 have no f32 masters: each step widens them, updates the copies and rounds these stochastically.
  bool stochastic_rounding = false;
  // That of a value is groups[Value::update_group - 1]; of group 0 it takes what is above. The table is here and not in
  // the graph, because passes make graphs anew.
  std::vector<UpdateGroup> groups = {};

  UpdateGroup Of(const Value& value) const {
    if (value.update_group == 0) return {.weight_decay = weight_decay};
    TEMPER_CHECK(static_cast<size_t>(value.update_group) <= groups.size())
        << value.name << " is of group " << value.update_group;
    return groups[static_cast<size_t>(value.update_group) - 1];
  }
  const UpdateRule& RuleOf(const UpdateGroup& group) const { return group.of_the_others ? *rule->others() : *rule; }
  const Attributes& SettingsOf(const UpdateGroup& group) const {
    return group.of_the_others ? settings_of_others : settings;
  }
  bool averages() const { return ema_decay > 0; }
  // As in torch, the average begins as the weights after the first step.
  double AverageShare(int64_t step) const { return step > 1 ? 1 - ema_decay : 1; }
  // Each optimizer's own entries of the step's scalars (UpdateRule::fill_scalars).
  void FillScalars(int64_t step, std::span<double> scalars) const;
};

// A stage of a pipeline and the weights that it shares with other stages.
struct UpdateStage {
  int stage = 0;
  // The stages of each shared weight (tied embeddings), ascending; at most two.
  std::map<std::string, std::vector<int>> holders;
};

// Builds the update of every trainable value of `forward`, the graph of one rank of `mesh`; the last micro-batch has
// already summed their gradients over ranks (compile/mesh/grad_sync.h). Sums of squares are summed over the axes that
// split a weight, so that the norm counts every element once. Pipeline stages exchange their gradients of a shared
// weight and sum their sums of squares. REQUIRES: a forward graph.
Graph BuildUpdate(const Graph& forward, const UpdateSpec& spec, const Mesh& mesh, const UpdateStage& stage = {});

}  // namespace temper
