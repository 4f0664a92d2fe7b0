// Sharding rules that several ops share.
#pragma once

#include <initializer_list>
#include <vector>

#include "graph/rule.h"

namespace temper {

// Ops on single elements: all inputs are sharded like input 0, whose sums are settled.
void ShardElementwise(ShardingSink& sink);
// Norms: (x_TD, vectors_D...) -> y_TD, statistics_T...; D has to be whole.
void ShardNorm(ShardingSink& sink);

// For ops along the tokens of whole rows, `what` ("a convolution"): refuses cp, which splits rows, and the 2-D modes of
// tp, which cut what these ops need whole. Returns whether it did. `x`: settled, of tokens.
bool RefusesPartsOfRows(const char* what, const Sharding& x, ShardingSink& sink);

// The sharding of a vector along dim `dim` that is used beside a value sharded like `p`: biases, weights of norms.
Sharding VectorBeside(const Sharding& p, int dim, const Mesh& mesh);

// The sharding of a whole vector that is used on every part of a value sharded like `p`.
Sharding WholeBeside(const Sharding& p, const Mesh& mesh);

// `p` without `axis` among the splits of dim `dim`: whole along that axis, used differently by each rank.
Sharding Gathered(Sharding p, int dim, Axis axis);

// Along every axis where one operand of an op is split or varying, those that are whole become varying, because ranks
// use them differently. (A varying operand of an op that is the same on all ranks makes the result varying.)
void UseAlike(std::initializer_list<Sharding*> operands, const Mesh& mesh);

// Emits the op with `inputs` and, if it has the flag acc, operand `acc`, and delivers the result, sharded like `y`.
// What is added to terms of a sum is added once, after the sum, unless it lies as they do.
void DeliverWithAcc(ShardingSink& sink, std::vector<ValueId> inputs, int acc, const Sharding& y);
// The same with other attributes than the node's.
void DeliverWithAcc(ShardingSink& sink, std::vector<ValueId> inputs, int acc, const Sharding& y, Attributes attributes);

}  // namespace temper
