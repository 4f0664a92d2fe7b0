// Graph: a training or decoding step as data, in single-assignment form. Passes are functions from Graph to Graph.
//
// A Graph owns its values and nodes; ids are indices and stay valid as more are added. Not thread-safe.
// Nodes stand in execution order: a node may use only values that are sources or outputs of earlier nodes (Verify).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/attributes.h"
#include "graph/op.h"
#include "tensor/dim_label.h"
#include "tensor/shape.h"
#include "tensor/sharding.h"
#include "tensor/tier.h"

namespace temper {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

// The purpose of a value. Sources (values that no node makes) have one of the persistent roles; node outputs are
// activations unless they update a persistent value or are named kOutput or kGradient.
enum class Role : uint8_t {
  kInput,           // written by the host before the step, one instance per micro-batch
  kOutput,          // read by the host after the step, one instance per micro-batch
  kConstant,        // named "constant.<n>...": every element is the integer n, written when a run is set up
  kWeight,          // a tensor of the model, in compute precision
  kAdapter,         // a LoRA matrix, in compute precision
  kActivation,      // lives within a step
  kGradient,        // gradient of a trainable value, f32, lives from its first contribution to its update
  kOptimizerState,  // f32 master copies, and what the optimizer keeps (graph/update_rule.h)
  kCache,           // keys and values of earlier tokens; copies of weights, made once per step: gathered, or packed
};
std::string_view ToString(Role role);
std::optional<Role> ParseRole(std::string_view text);

// Which part of the step a node belongs to. Segments are (phase, block).
enum class Phase : uint8_t { kForward, kBackward, kUpdate };
std::string_view ToString(Phase phase);
std::optional<Phase> ParsePhase(std::string_view text);

// Blocks are the model's layers; these stand for everything before and after them.
inline constexpr int kBlockBefore = -1;  // embeddings, tables
inline constexpr int kBlockAfter = -2;   // final norm, head, loss
std::string NameOfBlock(int block);      // "block 3", "before the blocks", "after the blocks"
std::string OfBlock(int block);          // after a node's op: "of block 3", "before the blocks", "after the blocks"

struct Value {
  std::string name;  // canonical: a weight has its HF name; a recomputed clone has its original's name
  TensorType type;
  Role role = Role::kActivation;
  bool trainable = false;
  bool decays = false;   // for a weight or adapter: weight decay applies to it
  int update_group = 0;  // for a trainable value: its UpdateGroup, an index (compile/step/update.h: UpdateSpec)
  // An input whose first dim is the tokens of a micro-batch: ranks that share a batch hold parts of it.
  bool per_token = false;
  Tier tier =
      Tier::kDevice;  // where it lives; on the disk only sources, what updates them, and nothing that a kernel touches
  DimLabels labels;   // for a weight or adapter: what its dims stand for
  // This value overwrites that one, whose last use is the node that makes this. Both share an address.
  ValueId updates = kNoValue;
  // For a source that is a part of a larger tensor, or of which other ranks hold a copy: which part. nullopt with one
  // rank.
  std::optional<Shard> shard;
};

// Whether weight decay applies to such a value by default; the text form then leaves it out.
bool DecaysByDefault(Role role, const Shape& shape);

struct Node {
  Op op;
  std::vector<ValueId> inputs, outputs;
  Attributes attributes;
  int block = kBlockBefore;
  Phase phase = Phase::kForward;
  std::string rng_name;  // canonical name whose hash keys the draws of a random op; empty for others
};

// A loss: where the backward pass starts (compile/step/differentiate.h). A graph may have several; their gradients add.
struct LossRoot {
  ValueId loss;  // output of a node
  // The gradient of `loss`: a source of its type. kNoValue: 1 for every element, where the op itself makes the
  // gradients of its output's sum (OpRule::only_root).
  ValueId seed = kNoValue;
  friend bool operator==(const LossRoot&, const LossRoot&) = default;
};

class Graph {
 public:
  void Reserve(size_t values, size_t nodes) {
    values_.reserve(values);
    nodes_.reserve(nodes);
  }
  ValueId AddValue(Value value);
  void AddNode(Node node) { nodes_.push_back(std::move(node)); }

  const Value& value(ValueId id) const {
    if (static_cast<size_t>(id) >= values_.size()) Unknown(id);
    return values_[static_cast<size_t>(id)];
  }
  Value& value(ValueId id) { return const_cast<Value&>(std::as_const(*this).value(id)); }
  int num_values() const { return static_cast<int>(values_.size()); }
  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<LossRoot>& roots() const { return roots_; }
  std::vector<LossRoot>& roots() { return roots_; }

  // The first value of that name, or kNoValue. O(values): passes that look up many keep a map of their own.
  ValueId FindSource(std::string_view name) const;
  // Follows `updates` to the value that owns the address.
  ValueId Root(ValueId id) const {
    while (value(id).updates != kNoValue) id = value(id).updates;
    return id;
  }

 private:
  [[noreturn]] void Unknown(ValueId id) const;

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<LossRoot> roots_;
};

// For each value the block of the first node that uses it; kBlockBefore if none does.
std::vector<int> BlocksOfFirstUse(const Graph& graph);

// OK, or a text naming the node, the values and the fault: a value used before its definition, or never made, or
// written twice; attributes or types that disagree with the op's rule; an update of a value that is used later or has
// another type, or that the op cannot write over while it reads it; unknown ids; unprintable names; a root that no node
// makes or whose seed does not fit it.
Status Verify(const Graph& graph);

// One line per value, node and root; ReadGraph(PrintGraph(g)) equals g.
std::string PrintGraph(const Graph& graph);
Result<Graph> ReadGraph(std::string_view text);

}  // namespace temper
