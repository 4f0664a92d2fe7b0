// Sizes of the ops of graph/ops/balance.cc by their operands and attributes: for their rules and for every kernel.
#pragma once

#include "graph/rule.h"

namespace temper {

// A rank's part V of E experts: those from `begin` on. Without attributes all of them.
struct ExpertPart {
  int64_t experts = 0;  // E
  int64_t begin = 0, count = 0;
};

// `count`: V, where a tensor of the part says so; else it is the attribute's.
inline ExpertPart ExpertPartOf(int64_t experts, int64_t count, const Attributes& a) {
  return {.experts = experts, .begin = a.IntOr("begin", 0), .count = count};
}
inline ExpertPart ExpertPartOf(int64_t experts, const Attributes& a) {
  return ExpertPartOf(experts, a.IntOr("count", experts), a);
}

// Tokens whose probabilities kernels add up before they add these sums up, for any number of threads.
inline constexpr int64_t kRouterSumTokens = 128;

}  // namespace temper
