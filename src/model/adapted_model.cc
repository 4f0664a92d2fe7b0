#include "model/adapted_model.h"

#include <utility>

#include "model/row_rewrite.h"

namespace temper {

Graph AdaptedModel::Adapted(Graph forward, bool training) const {
  if (trains.all_weights) {
    if (training) TrainAllWeights(&forward);
    return forward;
  }
  if (!trains.adapters.empty()) forward = AddLora(std::move(forward), trains.adapters, training ? dropout : 0, norms);
  forward = ReadRows(trains.rows, training, std::move(forward));
  ReadCopies(trains.copies, training, &forward);
  KeepBaseAs(base, model.modules(), &forward);
  return forward;
}

}  // namespace temper
