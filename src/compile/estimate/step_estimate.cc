#include "compile/estimate/step_estimate.h"

#include <algorithm>

namespace temper {

const char* StepEstimate::Bottleneck() const {
  const std::pair<Seconds, const char*> terms[] = {{arithmetic, "arithmetic"},
                                                   {memory, "memory bandwidth"},
                                                   {launches, "launching kernels"},
                                                   {collectives + waiting, "communication"},
                                                   {moves + stalled, "moves between memory tiers"},
                                                   {stages, "waiting for other stages"}};
  return std::max_element(std::begin(terms), std::end(terms))->second;
}

}  // namespace temper
