// Candidates of a search: what a mesh, micro-batch and recompute would give, and which of them is best.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "compile/residency/residency.h"

namespace temper {

enum class SearchGoal { kThroughput, kFewestDevices };

struct Candidate {
  std::string settings;  // as the user would write them
  int devices = 1;
  Bytes bytes, limit;
  Bytes host;  // beside the device's, of what that does not hold
  bool fits = false;
  bool compiled = false;  // whole; else extrapolated from few blocks and micro-batches
  Seconds step;
  double tokens_per_second = 0, mfu = 0;
};

// Figures of a step that grow by the same amount with every block of a kind (and every micro-batch): few blocks are
// compiled, of many it is this line.
struct StepFigures {
  double bytes = 0, seconds = 0, flops_per_token = 0;  // the last: that the model needs
  double activations = 0, optimizer = 0;               // bytes, of those at the fullest moment
};
// From `low`, for each kind of blocks the figures with `more` blocks of that kind beside those of `low`, and how many
// there are beside them here: fewer where that is negative.
struct MoreOfKind {
  StepFigures high;
  double blocks = 0;
};
StepFigures Extrapolated(const StepFigures& low, int64_t more, std::span<const MoreOfKind> kinds);

// Of `stages` that have as many blocks each and run `micro_batches` one forward, one backward: from one that has its
// blocks and all that is outside of them to itself. The bubble is what the first micro-batch waits for; the first stage
// keeps the activations of as many micro-batches as there are stages.
StepFigures InStages(const StepFigures& stage, int64_t stages, int64_t micro_batches);

// Seconds that a step takes longer if `excess` bytes live in the host's memory, none of which is hidden behind
// computing: an upper bound. Optimizer states go first (they are updated there: a gradient of 4 bytes leaves and a
// weight of 2 comes back for 12 of them), then weights, fetched for the forward and the backward of each micro-batch.
Seconds SecondsOfSpill(const StepFigures& figures, double excess, int64_t micro_batches, const LinkRates& links,
                       double host_bandwidth);

// Whether `a` is better than `b`: what fits before what does not; then by the goal, then faster, then smaller. Fewest
// devices are those that hold the run; that one of them does with a host's memory, at its pace, comes after.
bool IsBetter(const Candidate& a, const Candidate& b, SearchGoal goal);

struct SearchResult {
  SearchGoal goal = SearchGoal::kThroughput;
  int considered = 0;  // candidates looked at
  int ruled_out = 0;   // of them, by a bound or a rule
  Seconds spent;
  std::vector<Candidate> best;  // at most ten, the best first; that one is compiled whole
};

std::string SearchText(const SearchResult& result);
std::string SearchJson(const SearchResult& result);

}  // namespace temper
