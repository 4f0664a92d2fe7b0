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
  // `parts`: of a pipeline's stage; empty for a graph that is one. `activations`: ResidencySpec's. The graph must
  // outlive this.
  Touches(const Graph& graph, const std::vector<PipelinePart>& parts, const Homes& homes,
          std::optional<Tier> activations);

  // Where a node runs.
  Tier ProcessorOf(int node) const { return processor_[static_cast<size_t>(node)]; }
  Tier ProcessorOf(const Touch& touch) const { return ProcessorOf(touch.node); }
  // By root; empty of values that no node touches.
  const std::vector<Touch>& Of(ValueId root) const { return touches_[static_cast<size_t>(root)]; }
  Tier HomeOf(ValueId root) const { return home_[static_cast<size_t>(root)]; }
  // A root that is touched at all.
  bool IsTouched(ValueId id) const { return graph_.Root(id) == id && !Of(id).empty(); }
  // An activation that the backward pass comes back to, and that may wait for it elsewhere than on the device. What
  // stages give each other stays where it is received.
  bool Leaves(ValueId root) const;
  // An activation that lies in a slot (compile/layout.h): it is there from one part to another, or is on its way
  // between stages beside other parts.
  bool IsInSlot(ValueId root) const;
  // Touched away from its home.
  bool IsAway(ValueId root) const;

  // The nodes of a node's part: [begin, end).
  int PartBegin(int node) const { return part_begin_[static_cast<size_t>(node)]; }
  int PartEnd(int node) const { return part_end_[static_cast<size_t>(node)]; }
  bool SamePart(int a, int b) const { return PartBegin(a) == PartBegin(b); }

 private:
  bool IsTransferred(ValueId root) const;
  void FindProcessors(const Homes& homes);
  void FindTouches();
  void FindHomes(const Homes& homes);

  const Graph& graph_;
  const std::optional<Tier> activations_;
  std::vector<int> part_begin_, part_end_;   // per node
  std::vector<Tier> processor_;              // per node
  std::vector<std::vector<Touch>> touches_;  // per root
  std::vector<Tier> home_;                   // per root
};

}  // namespace temper
