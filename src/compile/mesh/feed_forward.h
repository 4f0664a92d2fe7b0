// feed_forward: finds the products of a block's feed-forward part, between which no op mixes tokens. If tensor ranks
// split the tokens of the residual stream (sequence parallelism), these products can be computed in two ways: all
// tokens with some of the ffn's columns, or some of the tokens with whole weights (MlpMove).
#pragma once

#include <map>
#include <set>
#include <string>

#include "graph/graph.h"
#include "tensor/sharding.h"

namespace temper {

// Linear nodes whose weights are split among tensor ranks, but for an MLP beside a mixture's experts, which each rank
// computes for all tokens: those that produce the ffn's columns and those that consume them, with only element-wise ops
// in between; with their LoRA branches. `weights`: shardings by name.
std::set<const Node*> FeedForwardProducts(const Graph& forward, const std::map<std::string, Sharding>& weights);

}  // namespace temper
