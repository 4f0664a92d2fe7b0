// BatchCut: how many rows of a step make a micro-batch. The rows of a step are the user's; a larger micro-batch saves
// traffic (weights that are gathered or fetched once per micro-batch) and small products, and takes memory for its
// activations. Every cut trains on the same rows in the same order, and draws the same random numbers; losses differ by
// the order of sums. (A loss of a micro-batch as a whole would differ: CutEstimates::fixed.)
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "settings/run_config.h"

namespace temper {

// A step of a run whose batch is cut in some way.
struct CutEstimate {
  bool fits = false;
  bool spills = false;  // only with values in farther tiers
  Seconds step;         // if it fits
};

// How a rank's step is cut.
struct BatchCut {
  int64_t rows = 1, micro_batches = 1;
  double gain = 1;               // how many times as fast as micro-batches of one row
  std::string ToString() const;  // "2 micro-batches of 4 rows, estimated 1.80 times as fast as 8 of 1 row"
};

// Errors: this cut is not possible, or the run is not.
using EstimateCut = std::function<Result<CutEstimate>(const RunConfig&)>;

// Cuts are compared by `quick`, if it is there: steps of large models, extrapolated from few blocks. The one chosen is
// then compiled by `whole`, and gives way to smaller micro-batches where it takes more than was expected.
struct CutEstimates {
  EstimateCut whole, quick = nullptr;
  bool shares_memory = false;  // with other programs: the device is the host
  // What a micro-batch learns depends on its rows (a loss that balances experts): one row each, whatever fits.
  bool fixed = false;
};

// Cuts a step of config.batch.gradient_accumulation_steps rows of a rank: the fewest rows per micro-batch of those that
// are about as fast as the fastest. Errors without `quick`: those of `whole` for micro-batches of one row, if no cut is
// possible. With it a run that may not fit in any way is cut into micro-batches of one row.
// REQUIRES: config.batch.auto_cut.
Result<BatchCut> ChooseBatchCut(const RunConfig& config, const CutEstimates& estimates);

// Sets the batch of `config`, whose auto_cut it clears; that of evaluation too, if it follows.
void ApplyCut(const BatchCut& cut, RunConfig* config);

}  // namespace temper
