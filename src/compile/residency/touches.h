// touches: where the nodes of a graph run, which of them touch each value, and where each value lives: what residency
// (compile/residency/residency.h) goes by.
#pragma once

#include <optional>
#include <vector>

#include "compile/pipeline/pipeline.h"
#include "compile/residency/residency_spec.h"
#include "graph/graph.h"

namespace temper {

// Parts of an update that are at the host at once: one is read, one updated, one written.
inline constexpr int64_t kPartsAtHost = 3;

// Of tensors that take `whole` bytes, `of_element` all together for each element of the weight, what the update has at
// the host at once when they are on the disk: all, or as many parts as are under way.
Bytes UpdateAtHost(Bytes whole, Bytes of_element, int64_t update_part);

// A node that reads or writes a value. Of nodes that do so twice, both.
struct Touch {
  int node = 0;
  Tier on = Tier::kDevice;  // where: the node's processor, or the value's home, of which it works on a part at a time
  bool reads = false, writes = false;
};

class Touches {
 public:
  // `parts`: of a pipeline's stage; empty for a graph that is one. The graph must outlive this.
  Touches(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec);

  // Where a node runs.
  Tier ProcessorOf(int node) const { return processor_[static_cast<size_t>(node)]; }
  // An update of states on the disk that goes through the host a part at a time.
  bool IsCut(int node) const { return cut_[static_cast<size_t>(node)]; }
  // Bytes of the host that its copies take. REQUIRES: IsCut(node).
  Bytes CopiesOfCut(int node) const;
  // By root; empty of values that no node touches.
  const std::vector<Touch>& Of(ValueId root) const { return touches_[static_cast<size_t>(root)]; }
  Tier HomeOf(ValueId root) const { return home_[static_cast<size_t>(root)]; }
  // A root that is touched at all.
  bool IsTouched(ValueId id) const { return graph_.Root(id) == id && !Of(id).empty(); }
  // An activation that the backward pass comes back to, and that may wait for it elsewhere than on the device. What
  // stages give each other stays where it is received.
  bool Leaves(ValueId root) const;
  // An activation that lies in a slot (compile/layout/layout.h): it is there from one part to another, or is on its way
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
  void FindCut(const ResidencySpec& spec);
  void FindTouches(const Homes& homes);
  void FindHomes(const Homes& homes);

  const Graph& graph_;
  const std::optional<Tier> activations_;
  const int64_t update_part_;
  std::vector<int> part_begin_, part_end_;   // per node
  std::vector<Tier> processor_;              // per node
  std::vector<bool> cut_;                    // per node
  std::vector<std::vector<Touch>> touches_;  // per root
  std::vector<Tier> home_;                   // per root
};

}  // namespace temper
