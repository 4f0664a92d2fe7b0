// Timeline: the nodes and values of graphs that run one after the other, as far as a layout needs them. A search for
// tiers lays out hundreds of graphs of thousands of nodes: a timeline copies no names, attributes or lists.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace temper {

// The tier of a node's operands; for a move, its destination.
Tier TierOf(const Graph& graph, const Node& node);

// Per value the end of its chain of `updates` (Value::updates). O(values), however long the chains are: an update in
// parts makes one of hundreds.
std::vector<ValueId> RootsOf(std::span<const ValueId> updates);

class Timeline {
 public:
  struct Node {
    Op op;
    Phase phase;
    Tier tier;       // TierOf
    bool is_beside;  // a move, collective or transfer that runs in the background
    int block;
    Bytes scratch;
    int64_t first_id;  // of its operands, inputs first
    int32_t inputs, outputs;
  };
  struct Value {
    Bytes bytes;
    Role role;
    Tier tier;
  };

  // `threads`: those of the Program, on which scratch depends.
  explicit Timeline(int threads) : threads_(threads) {}

  // Appends the nodes of `graph`, and returns the id here of each of its values: `same[v]` if that is one, a new value
  // otherwise. `same` may be empty: all are new.
  std::vector<ValueId> Append(const Graph& graph, std::span<const ValueId> same = {});

  int num_values() const { return static_cast<int>(values_.size()); }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  const std::vector<Node>& nodes() const { return nodes_; }
  std::span<const ValueId> InputsOf(const Node& node) const { return Ids(node.first_id, node.inputs); }
  std::span<const ValueId> OutputsOf(const Node& node) const { return Ids(node.first_id + node.inputs, node.outputs); }
  std::span<const ValueId> OperandsOf(const Node& node) const { return Ids(node.first_id, node.inputs + node.outputs); }
  // Per value its Graph::Root.
  std::vector<ValueId> Roots() const { return RootsOf(updates_); }

 private:
  std::span<const ValueId> Ids(int64_t first, int32_t count) const {
    return {ids_.data() + first, static_cast<size_t>(count)};
  }

  int threads_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<ValueId> updates_;  // per value
  std::vector<ValueId> ids_;      // operands of all nodes
};

}  // namespace temper
