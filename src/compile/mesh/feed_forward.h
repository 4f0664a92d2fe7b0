// feed_forward: the products of a block's feed-forward part, between which nothing mixes tokens. Where tensor ranks
// share the tokens of the residual stream (sequence parallelism), these can be made in two ways: with all tokens and a
// part of the ffn's columns, or with a part of the tokens and whole weights (MlpMove).
#pragma once

#include <map>
#include <set>
#include <string>

#include "graph/graph.h"
#include "tensor/sharding.h"

namespace temper {

// Linear nodes whose weights are split among tensor ranks: those that make the ffn's columns and those that take them,
// with nothing but element-wise ops in between; with their LoRA branches. `weights`: how weights lie, by name.
std::set<const Node*> FeedForwardProducts(const Graph& forward, const std::map<std::string, Sharding>& weights);

}  // namespace temper
