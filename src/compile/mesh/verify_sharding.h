// verify_sharding: proves that the finished graphs of all ranks together compute the same as one rank. It derives the
// sharding of every result from those of the operands, by the definitions of ops (graph/flow.h) and collectives,
// independently of how partition made the graphs. It refuses:
//
//   a term of a sum used as the sum; a whole value added to terms, or summed once per rank
//   operands whose parts do not belong together; a split dim that an op needs whole
//   a gradient that reaches its optimizer as terms (a missing all_reduce over depth), or split differently from its
//   weight
//
// By induction over the nodes, every value then represents the one that a single rank would have. All ranks have the
// same nodes except for sizes (checked by compile/mesh/verify_agreement.h), so one rank's graphs are enough.
#pragma once

#include <map>
#include <span>
#include <string>

#include "graph/graph.h"
#include "tensor/sharding.h"

namespace temper {

// `graphs` in the order they are run: forward and backward passes, update; evaluation. `weights`: the stored sharding
// of every weight and adapter, by name. An error is a bug of a pass; it names the node and its tensors.
// Cost: a microsecond per node.
Status VerifyShardings(const Mesh& mesh, const std::map<std::string, Sharding>& weights,
                       std::span<const Graph* const> graphs);

}  // namespace temper
