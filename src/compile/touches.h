// touches: where the nodes of a graph run, which of them touch each value, and where each value lives: what residency
// (compile/residency.h) goes by.
#pragma once

#include <optional>
#include <vector>

#include "compile/residency.h"
#include "graph/graph.h"

namespace temper {

// A node that reads or writes a value. Of nodes that do so twice, both.
struct Touch {
  int node = 0;
  bool reads = false, writes = false;
};

class Touches {
 public:
  // `activations`: ResidencySpec's. The graph must outlive this.
  Touches(const Graph& graph, const Homes& homes, std::optional<Tier> activations);

  // Where a node runs.
  Tier ProcessorOf(int node) const { return processor_[static_cast<size_t>(node)]; }
  Tier ProcessorOf(const Touch& touch) const { return ProcessorOf(touch.node); }
  // By root; empty of values that no node touches.
  const std::vector<Touch>& Of(ValueId root) const { return touches_[static_cast<size_t>(root)]; }
  Tier HomeOf(ValueId root) const { return home_[static_cast<size_t>(root)]; }
  // A root that is touched at all.
  bool IsTouched(ValueId id) const { return graph_.Root(id) == id && !Of(id).empty(); }
  // An activation that the backward pass comes back to, and that may wait for it elsewhere than on the device.
  bool Leaves(ValueId root) const;
  // Touched away from its home.
  bool IsAway(ValueId root) const;

 private:
  void FindProcessors(const Homes& homes);
  void FindTouches();
  void FindHomes(const Homes& homes);

  const Graph& graph_;
  const std::optional<Tier> activations_;
  std::vector<Tier> processor_;              // per node
  std::vector<std::vector<Touch>> touches_;  // per root
  std::vector<Tier> home_;                   // per root
};

}  // namespace temper
