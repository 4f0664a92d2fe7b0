// NodeCosts: what all choices of tiers for a graph's values have in common, found once for all of them.
#pragma once

#include <vector>

#include "base/units.h"
#include "compile/rates/device_rates.h"
#include "graph/graph.h"

namespace temper {

struct NodeCosts {
  std::vector<Bytes> scratch;    // per node, aligned
  std::vector<Seconds> starts;   // per node, and at the end the sum: if nothing waits; collectives take no time
  std::vector<bool> takes_over;  // per value: it takes the memory of an operand of its node (UpdateInPlace)
};

// `rates`: nullptr leaves out `starts`. `threads`: of the kernels.
NodeCosts CostsOfNodes(const Graph& graph, const DeviceRates* rates, int threads);

}  // namespace temper
