// UpdateRule: everything that the rest of Temper knows about an optimizer. Each is one file in graph/ops/, beside the
// OpRule of the op that computes it, which points to it. Code that builds, shards, places, moves, saves or restores
// states, and code that reads settings, asks the rule and names no optimizer.
//
// All have the same order of operands:
//   (master, gradient, states..., clip f32[2], scalars) -> master', states'..., [weight']
// `master` is the f32 copy of a weight that training computes with in another type, or the weight itself where that is
// f32. weight', where the attribute `weight` is 1, is master' rounded to `dtype`. Outputs are written over the inputs
// that they replace.
//
// Constants; any thread may read them.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/attributes.h"
#include "graph/graph.h"
#include "graph/op.h"

namespace temper {

// A tensor that an optimizer keeps of a weight from step to step. It starts as zeros.
struct UpdateState {
  // What it has a number for: each element of the weight; each too, but in 8 bits and in blocks
  // (tensor/dynamic_blocks.h); each row or column of the last two dims, factors of a matrix.
  enum class Of : uint8_t { kElement, kElementInBlocks, kRow, kColumn };

  std::string_view name;       // "adam_m": weight W's is called "adam_m:W", in Programs and in checkpoints
  const char* flag = nullptr;  // for an optional state: present where the attribute of that name is 1
  Of of = Of::kElement;

  // Of a weight, or of a part of one. REQUIRES: a part with whole blocks; rank 2 or more for rows and columns.
  TensorType TypeOf(const Shape& weight) const;
  // Where the state of the part of a weight that begins at `begin` begins in that of the whole.
  Shape BeginOf(const Shape& whole, const Shape& begin) const;

  std::string NameOf(std::string_view weight) const { return std::string(name) + ":" + std::string(weight); }
};

// A number that users set: an attribute of the op.
struct UpdateSetting {
  enum class Range : uint8_t { kFraction, kPositive, kNegative, kFlag };  // 0 <= x < 1; x > 0; x < 0; 0 or 1
  std::string_view option;  // "adam_beta1": its name in YAML and on the command line
  const char* attribute;    // "beta1": of the op; also its name in PyTorch
  double fallback;          // where users do not set it
  Range range;
  std::string_view help;
};

// What a rule knows of a trained value that it may take.
struct UpdatedValue {
  Shape shape;            // of the whole, on any mesh
  bool is_table = false;  // its rows are looked up: torch.nn.Embedding
  bool in_block = false;  // of the model's blocks, not before or behind them
};

struct UpdateRule {
  std::string_view name;  // "adamw": in settings and manifests
  Op op;
  std::span<const UpdateState> states;      // all that it may have
  std::span<const UpdateSetting> settings;  // all that it takes
  std::string_view help;                    // for the option that chooses it; "": its name says enough
  std::string_view decay_help;              // how weight decay acts
  // What other tools call it, and variants whose states are of another type or elsewhere; separated by spaces.
  std::string_view other_names, other_variants;
  std::string_view states_are = "f32";  // in what is said of such a variant
  // Which values it updates; the others are those of optimizer `rest`, whose settings a run of this one has beside its
  // own. nullptr: all.
  bool (*takes)(const UpdatedValue& value) = nullptr;
  std::optional<Op> rest;
  // Its step is proportional to the gradient, so that it needs a higher learning rate than the defaults.
  bool scales_with_gradient = false;
  // Sets the attributes that follow from the settings. nullptr: none do.
  void (*derive)(Attributes& settings) = nullptr;
  // Sets the attributes that follow from the shape of a value, which states it has. nullptr: none do.
  void (*derive_of_shape)(Attributes& attributes, const Shape& value) = nullptr;
  // What is wrong with settings that are each in range, with the remedy; "": nothing. nullptr: they always fit.
  std::string_view (*conflict)(const Attributes& settings) = nullptr;
  // Its own entries of `scalars` (f64[kNumScalars], enum Scalar) for optimizer step `step`, which counts from 1.
  // nullptr: it has none.
  void (*fill_scalars)(const Attributes& settings, int64_t step, std::span<double> scalars) = nullptr;
  // It keeps the moving average of weights that the run's optimizer updates, and is no run's optimizer. Its master is
  // the average, its gradient the weight.
  bool averages = false;

  // The op's attributes: its settings at their defaults but for `changed`, by attribute. REQUIRES: it has these.
  Attributes Settings(std::span<const std::pair<std::string_view, double>> changed = {}) const;
  // `settings` with what follows from the shape of a value.
  Attributes SettingsFor(Attributes settings, const Shape& value) const;
  // An element of master and states depends on no other element, according to the op's own rule. Other optimizers
  // cannot update in parts, so their tensors pass through the host whole. A mesh that splits them is refused, but for
  // one that leaves an optimizer whose states are in blocks whole blocks.
  bool elementwise() const;
  bool in_blocks() const;
  // nullptr: it takes all values.
  const UpdateRule* others() const;
  // Its states with these attributes, of SettingsFor, in the order of the operands.
  std::vector<const UpdateState*> StatesOf(const Attributes& attributes) const;
};

// What the moving average of a weight is called: as a state of the optimizer.
inline constexpr UpdateState kAverageState = {.name = "ema"};

// All that a run can choose, in the order of op_list.inc.
std::span<const UpdateRule* const> UpdateRules();
// All states that a value may have: of the optimizers, and its average.
std::vector<const UpdateState*> UpdateStates();
// nullptr: the op updates nothing.
const UpdateRule* UpdateRuleOf(Op op);
// UpdateRule::Settings of the optimizer that `op` computes.
Attributes UpdateSettings(Op op, std::initializer_list<std::pair<std::string_view, double>> changed = {});
// The optimizer of runs that name none.
const UpdateRule& DefaultUpdateRule();

// The places of an update's operands.
class UpdateOperands {
 public:
  static constexpr size_t kMaster = 0, kGradient = 1, kFirstState = 2;

  // REQUIRES: `node` is of an op that has an UpdateRule.
  explicit UpdateOperands(const Node& node);

  // This many first inputs are of the weight's elements: master, gradient and states.
  size_t tensors() const { return kFirstState + states_; }
  // This many first outputs replace inputs: master' and states'. weight' follows.
  size_t replacing() const { return 1 + states_; }
  // The input that is with the weight's states, or the master for
  // an optimizer without states: the update runs where it lives.
  size_t home() const { return states_ > 0 ? kFirstState : kMaster; }
  // The input that output `output` replaces. REQUIRES: output < replacing().
  static constexpr size_t Replaced(size_t output) { return output == 0 ? kMaster : output + 1; }

 private:
  size_t states_;
};

}  // namespace temper
