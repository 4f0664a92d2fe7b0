// touches: where the nodes of a graph run, which of them touch each value, and where each value lives: the analysis
// behind residency (compile/residency/residency.h).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "compile/pipeline/pipeline.h"
#include "compile/residency/residency_spec.h"
#include "graph/graph.h"

namespace temper {

// Parts of an update at the host at the same time: one being read, one updated, one written.
inline constexpr int64_t kPartsAtHost = 3;

// Bytes at the host during an update of tensors on the disk that take `whole` bytes, `of_element` per element of the
// weight: all of them, or the parts in progress.
Bytes UpdateAtHost(Bytes whole, Bytes of_element, int64_t update_part);

// A node that reads or writes a value; if it does both, one Touch has both flags.
struct Touch {
  int node = 0;
  Tier on = Tier::kDevice;  // the node's processor, or the value's home if it is processed in parts
  bool reads = false, writes = false;
};

class Touches {
 public:
  // `parts`: of a pipeline's stage; empty for a graph that is one part. The graph must outlive this.
  Touches(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec);

  // The tier whose processor runs a node.
  Tier ProcessorOf(int node) const { return processor_[static_cast<size_t>(node)]; }
  // Whether the node updates states on the disk that pass through the host in parts.
  bool IsCut(int node) const { return cut_[static_cast<size_t>(node)]; }
  // Bytes of its copies at the host. REQUIRES: IsCut(node).
  Bytes CopiesOfCut(int node) const;
  // Touches of a root; empty if no node touches it.
  std::span<const Touch> Of(ValueId root) const {
    const auto at = static_cast<size_t>(root);
    return {touches_.data() + first_[at], touches_.data() + first_[at + 1]};
  }
  Tier HomeOf(ValueId root) const { return home_[static_cast<size_t>(root)]; }
  // Graph::Root.
  ValueId RootOf(ValueId id) const { return roots_[static_cast<size_t>(id)]; }
  // Whether `id` is a root that some node touches.
  bool IsTouched(ValueId id) const { return RootOf(id) == id && !Of(id).empty(); }
  // Whether it is an activation that the backward reads and that may
  // leave the device until then. Values received from other stages stay.
  bool Leaves(ValueId root) const;
  // Whether it is an activation in a slot (compile/layout/layout.h): it lives from one part to another, or is
  // transferred between stages while other parts run.
  bool IsInSlot(ValueId root) const;
  // Whether some node touches it away from its home.
  bool IsAway(ValueId root) const;

  // The nodes of a node's part: [begin, end).
  int PartBegin(int node) const { return part_begin_[static_cast<size_t>(node)]; }
  int PartEnd(int node) const { return part_end_[static_cast<size_t>(node)]; }
  bool SamePart(int a, int b) const { return PartBegin(a) == PartBegin(b); }

 private:
  bool IsTransferred(ValueId root) const;
  void FindNamed(const Homes& homes);
  // The home that `homes` gives a persistent value; the device for all others.
  Tier NamedHomeOf(ValueId id) const { return named_[static_cast<size_t>(RootOf(id))]; }
  void FindProcessors();
  void FindCut(const ResidencySpec& spec);
  void FindTouches();
  void FindHomes();

  const Graph& graph_;
  const std::optional<Tier> activations_;
  const int64_t update_part_;
  const std::vector<ValueId> roots_;        // per value
  std::vector<int> part_begin_, part_end_;  // per node
  std::vector<Tier> processor_;             // per node
  std::vector<bool> cut_;                   // per node
  std::vector<Touch> touches_;              // by root, then by node
  std::vector<size_t> first_;               // per root, and at the end: where its touches begin
  std::vector<Tier> named_, home_;          // per root
};

}  // namespace temper
