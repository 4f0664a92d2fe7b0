// Candidates of a search: the forecast for a mesh, micro-batch and recompute, and the choice of the best.
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
  Bytes host;  // host memory for values that do not fit on the device
  bool fits = false;
  bool compiled = false;  // the whole model was compiled; else extrapolated from few blocks and micro-batches
  Seconds step;
  double tokens_per_second = 0, mfu = 0;
};

// Whether `a` is better than `b`: candidates that fit come first; then by the goal, then faster, then smaller. For
// fewest devices, candidates that fit on devices alone precede those that need host memory.
bool IsBetter(const Candidate& a, const Candidate& b, SearchGoal goal);

struct SearchResult {
  SearchGoal goal = SearchGoal::kThroughput;
  int considered = 0;  // number of candidates considered
  int ruled_out = 0;   // of these, excluded by a bound or a rule
  Seconds spent;
  std::vector<Candidate> best;  // at most ten, the best first; the best one is compiled whole
};

std::string SearchText(const SearchResult& result);
std::string SearchJson(const SearchResult& result);

}  // namespace temper
