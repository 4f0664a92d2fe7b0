// SavedSlices: whether what the ranks of a run would write of its checkpoints' tensors makes them up. A run that could
// not be saved is not planned, and does not start.
#pragma once

#include <map>
#include <span>
#include <string>

#include "base/status.h"
#include "format/weight_source.h"
#include "tensor/mesh.h"
#include "tensor/sharding.h"

namespace temper {

// What the ranks of `mesh` write of every tensor that holds some of `weights`, cut and joined as
// checkpoint/training_state.h does it (OwnParts), has to be disjoint and to cover it. InvalidArgument names the tensor
// and the numbers. `shardings`: by a weight's name; weights without one are whole. REQUIRES: of any tensor all weights
// that lie in it are given, if they are trained.
Status CheckSavedSlices(std::span<const StoredWeight> weights, const std::map<std::string, Sharding>& shardings,
                        const Mesh& mesh);

}  // namespace temper
