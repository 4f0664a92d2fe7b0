// verify_placement: proves that the finished graphs of a rank compute, together with those of the other ranks, what one
// rank computes. It follows from every operand's sharding that of every result, by what ops compute (graph/flow.h) and
// by what collectives do, knowing nothing of how partition came to its graphs. What it refuses:
//
//   a term of a sum used as if it were the sum; a whole value added to terms, or added up once per rank
//   operands whose parts do not belong together; a dim in parts that an op needs whole
//   a gradient that reaches its optimizer as terms (the all_reduce over depth forgotten), or split otherwise than its
//   weight
//
// By induction over the nodes every value then stands for the one that a single rank would have. All ranks have the
// same nodes but for sizes, so one rank's graphs are enough; that ranks do have the same ones:
// compile/mesh/verify_agreement.h.
#pragma once

#include <map>
#include <span>
#include <string>

#include "graph/graph.h"
#include "tensor/sharding.h"

namespace temper {

// `graphs` in the order they are run: forward and backward passes, update; evaluation. `weights`: how every weight and
// adapter is stored, by name. An error is a bug of a pass; it names the node and its tensors.
// Cost: a microsecond per node.
Status VerifyShardings(const Mesh& mesh, const std::map<std::string, Sharding>& weights,
                       std::span<const Graph* const> graphs);

}  // namespace temper
