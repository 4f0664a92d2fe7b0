// layout: offsets of one graph's activations and of its nodes'
// scratch, relative to the regions that AssignAddresses gives them.
//
// A graph is one part, or consists of the parts of a pipeline's stage. A value that lives within one part is a
// temporary: parts run one after another and share one region. Scratch lives as long as its node and is packed with the
// temporaries. A value that lives from one part to another must exist for each micro-batch in flight: it gets an offset
// in its chunk's slots (compile/pipeline/calls.h). Each tier has its own regions and slots.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "compile/layout/pack.h"
#include "compile/layout/timeline.h"
#include "compile/pipeline/pipeline.h"
#include "graph/graph.h"

namespace temper {

// The location of a value. chunk == -1: a temporary.
struct Home {
  int chunk = -1;
  SlotKind kind = SlotKind::kKept;
  Bytes offset;  // in the region of temporaries, or in the slot
};

using SlotSizes = std::vector<std::array<Bytes, kNumSlotKinds>>;  // per chunk: bytes of one slot

using PackingGoals = std::array<PackingGoal, kNumTiers>;

// The layout within one tier.
struct TierLayout {
  Bytes span;       // of the region of temporaries; beyond PackingGoal::most they have no offsets
  Bytes peak_live;  // temporaries and scratch at `peak_node`
  Bytes peak_activations;
  Bytes peak_staged;     // of copies of values from other tiers
  Bytes peak_gradients;  // of `lasting` values
  size_t peak_node = 0;
  SlotSizes slots;
};

struct Layout {
  std::vector<Home> home;                     // per value; valid for roots of activations
  std::vector<std::optional<Bytes>> scratch;  // per node: offset in the region of temporaries; nullopt: no scratch
  std::array<TierLayout, kNumTiers> tiers;

  const TierLayout& in(Tier tier) const { return tiers[static_cast<size_t>(tier)]; }
};

// Whether a value outlives the step, or the host reads or writes it.
bool IsPersistent(const Graph& graph, ValueId id);

// Per value its Graph::Root.
std::vector<ValueId> RootsOf(const Graph& graph);

// `parts`: consecutive and covering the nodes; empty for nodes that are one part. `lasting`: activations that live
// from their first use to the end of the graph. `goals`: per tier, of the temporaries' packing.
Layout LayOut(const Timeline& timeline, const std::vector<PipelinePart>& parts, std::span<const ValueId> lasting = {},
              const PackingGoals& goals = {});
Layout LayOut(const Graph& graph, const std::vector<PipelinePart>& parts, int threads, const PackingGoals& goals = {});

}  // namespace temper
