// layout: where the activations of one graph and the scratch of its nodes lie, relative to the regions that place puts
// them in.
//
// A graph is one part, or the parts of a pipeline's stage. What lives within one part is a temporary: parts run one
// after another and share one region. Scratch lives as long as its node: it is packed with the temporaries. What lives
// from one part to another must be there for each micro-batch in flight: it has a place in its chunk's slots
// (pipeline_calls.h). Each tier has regions and slots of its own.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "compile/pipeline/pipeline.h"
#include "graph/graph.h"

namespace temper {

// Where a value lies. Of temporaries chunk is -1.
struct Home {
  int chunk = -1;
  SlotKind kind = SlotKind::kKept;
  Bytes offset;  // in the region of temporaries, or in the slot
};

using SlotSizes = std::vector<std::array<Bytes, kNumSlotKinds>>;  // per chunk: of one slot

// Of one tier.
struct TierLayout {
  Bytes span;       // of the region of temporaries
  Bytes peak_live;  // temporaries and scratch at `peak_node`
  Bytes peak_activations;
  Bytes peak_staged;     // of copies of what lives in another tier
  Bytes peak_gradients;  // of `lasting` values
  size_t peak_node = 0;
  SlotSizes slots;
};

struct Layout {
  std::vector<Home> home;                     // per value; meaningful for roots of activations
  std::vector<std::optional<Bytes>> scratch;  // per node: in the region of temporaries; none: it takes none
  std::array<TierLayout, kNumTiers> tiers;

  const TierLayout& in(Tier tier) const { return tiers[static_cast<size_t>(tier)]; }
};

// Where a node's operands lie; of a move, where it goes.
Tier TierOf(const Graph& graph, const Node& node);

// Of a value that outlives the step, or that the host reads or writes.
bool IsPersistent(const Graph& graph, ValueId id);

// `parts`: empty for a graph that is one. They stand one after another and are all of it. `lasting`: activations that
// stay from their first use to the end of the graph. `enough`: of each tier's region of temporaries, what another graph
// takes anyway: this one need not be packed tighter.
Layout LayOut(const Graph& graph, const std::vector<PipelinePart>& parts, int threads,
              std::span<const ValueId> lasting = {}, const std::array<Bytes, kNumTiers>& enough = {});

}  // namespace temper
