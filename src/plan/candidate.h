// Candidates of a search: the forecast for a mesh, micro-batch and recompute, and the choice of the best.
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
  Bytes host;  // host memory for values that do not fit on the device
  bool fits = false;
  bool compiled = false;  // the whole model was compiled; else extrapolated from few blocks and micro-batches
  Seconds step;
  double tokens_per_second = 0, mfu = 0;
};

// Figures of a step that grow linearly with the blocks of each kind (and
// with micro-batches): few blocks are compiled, many are extrapolated.
struct StepFigures {
  double bytes = 0, seconds = 0, flops_per_token = 0;  // flops_per_token: those that the model requires
  double activations = 0, optimizer = 0;               // parts of `bytes` at the memory peak
};
// Extrapolates from `low`. Each kind of blocks has `high`, the figures with `more` additional blocks of that kind, and
// `blocks`, the number of blocks to add to those of `low`; negative: to remove.
struct MoreOfKind {
  StepFigures high;
  double blocks = 0;
};
StepFigures Extrapolated(const StepFigures& low, int64_t more, std::span<const MoreOfKind> kinds);

// Figures of a 1F1B pipeline of `stages` equal stages with `micro_batches`, from those of one stage with its blocks and
// everything outside of blocks. The bubble is the wait for the first micro-batch; the first stage keeps the activations
// of one micro-batch per stage.
StepFigures InStages(const StepFigures& stage, int64_t stages, int64_t micro_batches);

// Additional seconds of a step if `excess` bytes live in the host's memory and no move is hidden
// by computing: an upper bound. Optimizer states move to the host first (they are updated there:
// for 12 bytes of states, 4 bytes of gradient leave and 2 bytes of weight return), then weights,
// which are fetched for the forward and the backward of each micro-batch.
Seconds SecondsOfSpill(const StepFigures& figures, double excess, int64_t micro_batches, const LinkRates& links,
                       double host_bandwidth);

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
