#include "model/adapted_model.h"

#include <utility>

namespace temper {

Graph AdaptedModel::Adapted(Graph forward, bool training) const {
  if (trains_all_weights) {
    if (training) TrainAllWeights(&forward);
    return forward;
  }
  if (!adapters.empty()) forward = AddLora(std::move(forward), adapters, training ? dropout : 0);
  KeepBaseAs(base, model.modules(), &forward);
  return forward;
}

}  // namespace temper
