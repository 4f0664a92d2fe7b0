// Sharding rules that several ops share.
#pragma once

#include <initializer_list>

#include "graph/rule.h"

namespace temper {

// Ops on single elements: all inputs lie like input 0, whose sums are settled.
void ShardElementwise(ShardingSink& sink);
// Norms: (x_TD, vectors_D...) -> y_TD, statistics_T...; D has to be whole.
void ShardNorm(ShardingSink& sink);

// How a vector along dim `dim` of a value that lies like `p` must lie to be used beside it: biases, weights of norms.
Sharding VectorBeside(const Sharding& p, int dim, const Mesh& mesh);

// How a whole vector must lie to be used on every part of a value that lies like `p`.
Sharding WholeBeside(const Sharding& p, const Mesh& mesh);

// `p` without `axis` among the splits of dim `dim`: whole along that axis, each rank doing something else with it.
Sharding Gathered(Sharding p, int dim, Axis axis);

// Along every axis where one operand of an op is split or varying the others that are whole become varying: what ranks
// do with them differs. (An operand that varies where the op is the same on all ranks makes the result varying.)
void UseAlike(std::initializer_list<Sharding*> operands, const Mesh& mesh);

}  // namespace temper
