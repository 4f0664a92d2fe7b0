// tier_groups: groups the persistent values of given graphs that must live in the same tier, with the cost of keeping
// each group away from the device. compile/memory/tier_search.h chooses among these groups.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "compile/memory/memory_spec.h"
#include "compile/pipeline/pipeline.h"
#include "compile/residency/node_costs.h"
#include "graph/graph.h"

namespace temper {

// A graph, with its parts if it is a pipeline's stage. Borrowed.
struct PartedGraph {
  const Graph* graph = nullptr;
  const std::vector<PipelinePart>* parts = nullptr;
};

struct GraphUse {
  PartedGraph of;
  int times;                                  // per step
  const std::vector<Slots>* slots = nullptr;  // for a stage: slots per chunk
  std::optional<NodeCosts> costs = {};        // if they are known already
};

// The graphs that are compiled together.
struct StepUses {
  std::vector<GraphUse> graphs;
  bool gradients_last = false;  // as in ResidencySpec: the update follows the only micro-batch
  // Each graph is laid out apart from the others: there is no pipeline, and no step of one micro-batch whose gradients
  // lie among its temporaries until the update.
  bool apart = false;
};

// The optimizer states of one weight are a group, because they
// are updated together; every other value is its own group.
struct TierGroup {
  std::vector<std::string> names;
  std::optional<Tier> fixed;  // set by an option
  bool frozen = true;         // an untrained weight: it can be read from the model's files
  bool updated = false;       // by the update, which runs at the host if the states are not on the device
  Bytes bytes;
  Bytes moved;  // per step, if it does not live on the device
  // For groups that are updated in parts if they live on the disk: bytes per element of the replaced values.
  std::optional<Bytes> of_element = {};
  bool whole = false;  // one of its updates works on all of it
  // For a gradient that exists only from the node on that creates it (ResidencySpec::gradients_last): per use, that
  // node, or the number of nodes if there is none.
  std::vector<size_t> from = {};
  // For states: the group of their gradient, if lasts(). It lives on the device only if they do: otherwise it would
  // leave the device in the update, which cannot hide the move.
  std::optional<size_t> gradient = {};
  bool follows = false;  // whether it is such a gradient

  bool lasts() const { return !from.empty(); }
  // Moved bytes that a step saves per byte of the device.
  double density() const { return static_cast<double>(moved.v) / static_cast<double>(std::max<int64_t>(bytes.v, 1)); }
};

// The tier that an option sets for values of that role.
std::optional<Tier> FixedTierOf(const MemorySpec& memory, Role role);

// In the order of the graphs.
std::vector<TierGroup> FindTierGroups(const MemorySpec& memory, const StepUses& uses);

// What some tier must hold throughout a step: all but frozen weights, which may stay in the model's files, and
// gradients that do not exist throughout.
Bytes AlwaysHeld(const std::vector<TierGroup>& groups);

// Indices, sorted by density, highest first; among equals, by first use: nothing hides their fetch.
std::vector<size_t> ByDensity(const std::vector<TierGroup>& groups);

}  // namespace temper
