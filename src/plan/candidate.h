// Candidates of a search: what a mesh, micro-batch and recompute would give, and which of them is best.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"

namespace temper {

enum class SearchGoal { kThroughput, kFewestDevices };

struct Candidate {
  std::string settings;  // as the user would write them
  int devices = 1;
  Bytes bytes, limit;
  bool fits = false;
  bool compiled = false;  // whole; else extrapolated from few blocks and micro-batches
  Seconds step;
  double tokens_per_second = 0, mfu = 0;
};

// Figures of a step that grow by the same amount with every block (and every micro-batch): of a few blocks each is
// compiled, of many it is this line.
struct StepFigures {
  double bytes = 0, seconds = 0, flops_per_token = 0;  // the last: that the model needs
};
// REQUIRES: low_blocks < high_blocks <= blocks.
StepFigures Extrapolated(const StepFigures& low, int64_t low_blocks, const StepFigures& high, int64_t high_blocks,
                         int64_t blocks);

// Whether `a` is better than `b`: what fits before what does not; then by the goal, then faster, then smaller.
bool IsBetter(const Candidate& a, const Candidate& b, SearchGoal goal);

struct SearchResult {
  SearchGoal goal = SearchGoal::kThroughput;
  int considered = 0;  // candidates looked at
  int ruled_out = 0;   // of them, by a bound or a rule, without a forecast
  Seconds spent;
  std::vector<Candidate> best;  // at most ten, the best first; that one is compiled whole
};

std::string SearchText(const SearchResult& result);
std::string SearchJson(const SearchResult& result);

}  // namespace temper
