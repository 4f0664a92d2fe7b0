#include "model/adapted_model.h"

#include <utility>

namespace temper {

Graph AdaptedModel::Forward(const ForwardSpec& spec) const {
  Graph graph = model.Forward(spec);
  if (trains_all_weights) {
    if (spec.training) TrainAllWeights(&graph);
    return graph;
  }
  if (!adapters.empty()) graph = AddLora(std::move(graph), adapters, spec.training ? dropout : 0);
  KeepBaseAs(base, model.modules(), &graph);
  return graph;
}

}  // namespace temper
