// copies: plans the copies of values outside their home tier. The touches of a value away from its home are divided
// into windows, each served by one copy, and the copies' fetches are issued ahead, as far as memory allows.
#pragma once

#include <array>
#include <vector>

#include "compile/residency/node_costs.h"
#include "compile/residency/residency_spec.h"
#include "compile/residency/touches.h"
#include "graph/graph.h"

namespace temper {

// A stretch of touches that one copy serves.
struct Window {
  ValueId root = kNoValue;
  Tier on = Tier::kDevice;
  int first = 0, last = 0;  // nodes of its first and last touch
  bool reads = false;       // reads the value of the home
  bool writes = false;
  bool writes_back = false;
  bool holds = false;  // keeps its memory until the write-back has finished
  int earliest = 0;    // earliest node before which the fetch may be issued
  int issue = 0;       // node before which the fetch is issued
  // Of a stack of experts whose readers have fewer rows than it has matrices: the value that says whose rows these are.
  // Only the matrices of those are fetched.
  ValueId routed_by = kNoValue;
};

// Bytes in each tier at each node.
using WorkingSets = std::array<std::vector<Bytes>, kNumTiers>;

// If every copy exists only for its touch. Persistent values at
// home and slots are not counted, except for gradients that last.
WorkingSets MeasureWorkingSets(const Graph& graph, const Touches& touches, const ResidencySpec& spec,
                               const NodeCosts& costs);

// Bytes of the activations that may leave the device between forward and backward: if the graph is one part, each is on
// the device or at the host when the backward begins.
Bytes LeavingBytes(const Graph& graph, const Touches& touches);

// In the order of their first touches, within the limits of `spec`.
std::vector<Window> FindWindows(const Graph& graph, const Touches& touches, const ResidencySpec& spec,
                                const NodeCosts& costs);

}  // namespace temper
