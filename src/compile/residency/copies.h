// copies: when a value is away from home. The touches of a value where it does not live are cut into windows, each
// served by one copy, and the copies' fetches are issued ahead, as far as there is room.
#pragma once

#include <array>
#include <vector>

#include "compile/residency/residency_spec.h"
#include "compile/residency/touches.h"
#include "graph/graph.h"

namespace temper {

// A stretch of touches that one copy serves.
struct Window {
  ValueId root = kNoValue;
  Tier on = Tier::kDevice;
  int first = 0, last = 0;  // touches' nodes
  bool reads = false;       // what is at home is needed
  bool writes = false;
  bool writes_back = false;
  bool holds = false;  // room is there while what is written back is on its way
  int earliest = 0;    // node before which a fetch may stand at the earliest
  int issue = 0;       // and where it stands
};

// Bytes in each tier at each node.
using WorkingSets = std::array<std::vector<Bytes>, kNumTiers>;

// When every copy is there for its touch alone. Persistent values at home, and slots, are not counted; of gradients
// those are that last.
WorkingSets MeasureWorkingSets(const Graph& graph, const Touches& touches, const ResidencySpec& spec);

// In the order of their first touches, within the room that `spec` gives.
std::vector<Window> FindWindows(const Graph& graph, const Touches& touches, const ResidencySpec& spec);

}  // namespace temper
