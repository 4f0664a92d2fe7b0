#include "compile/residency/node_costs.h"

#include "compile/step/fuse.h"
#include "graph/rule.h"
#include "program/program.h"

namespace temper {

NodeCosts CostsOfNodes(const Graph& graph, const DeviceRates* rates, int threads) {
  NodeCosts costs;
  costs.scratch.reserve(graph.nodes().size());
  for (const Node& node : graph.nodes())
    costs.scratch.push_back(AlignUp(WorkspaceOf(graph, node, threads), kAlignment));
  if (rates != nullptr) {
    costs.starts.push_back({});
    for (const Node& node : graph.nodes()) {
      Seconds takes{};
      if (!IsCollective(node.op)) {
        takes = rates->SecondsOf(node.op, TypesOf(graph, node.inputs), TypesOf(graph, node.outputs), node.attributes)
                    .total();
      }
      costs.starts.push_back(costs.starts.back() + takes);
    }
  }
  const std::vector<ValueId> from = TakenOver(graph);
  costs.takes_over.reserve(static_cast<size_t>(graph.num_values()));
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    costs.takes_over.push_back(graph.value(id).updates != kNoValue || from[static_cast<size_t>(id)] != kNoValue);
  }
  return costs;
}

}  // namespace temper
