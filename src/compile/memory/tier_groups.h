// placement_groups: the persistent values of given graphs, those together that live in one tier together, and what it
// costs to have them away from the device. What compile/memory/tier_search.h chooses among.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "compile/memory/memory_spec.h"
#include "compile/pipeline/pipeline.h"
#include "graph/graph.h"

namespace temper {

// A graph that is one, or a pipeline's stage. Borrowed.
struct PartedGraph {
  const Graph* graph = nullptr;
  const std::vector<PipelinePart>* parts = nullptr;
};

struct GraphUse {
  PartedGraph of;
  int times;                                  // in a step
  const std::vector<Slots>* slots = nullptr;  // of a stage: how many each chunk has
};

// What is compiled together.
struct StepUses {
  std::vector<GraphUse> graphs;
  bool gradients_last = false;  // ResidencySpec's: the update follows the one micro-batch
};

// Optimizer states of one weight are updated together; all other values are on their own.
struct TierGroup {
  std::vector<std::string> names;
  std::optional<Tier> fixed;  // by an option
  bool frozen = true;         // a weight that is not trained: the model's own files hold it
  bool updated = false;       // by the update, at the host where the states are far from the device
  Bytes bytes;
  Bytes moved;  // of a step, where it does not live on the device
  // Of what is updated in parts where it lives on the disk: bytes per element of what is replaced.
  std::optional<Bytes> of_element = {};
  // A gradient that is there only from the node on that makes it (ResidencySpec::gradients_last): per use, or how many
  // nodes it has.
  std::vector<size_t> from = {};
  // Of states: the group of their gradient where that lasts. It lives on the device where they do: else it would stay
  // there only to leave in the update, which has nothing to hide that behind.
  std::optional<size_t> gradient = {};
  bool follows = false;  // such a gradient

  bool lasts() const { return !from.empty(); }
  // Bytes that a step is spared by one of the device.
  double density() const { return static_cast<double>(moved.v) / static_cast<double>(std::max<int64_t>(bytes.v, 1)); }
};

// Where an option says that values of that role live.
std::optional<Tier> FixedTierOf(const MemorySpec& memory, Role role);

// In the order in which the graphs have them.
std::vector<TierGroup> FindTierGroups(const MemorySpec& memory, const StepUses& uses);

// Indices: what spares most per byte of the device first; of equals, those first used: their fetch has nothing to hide
// behind.
std::vector<size_t> ByDensity(const std::vector<TierGroup>& groups);

}  // namespace temper
