// The moving averages of trained weights, in a run's memory.
#pragma once

#include "checkpoint/load_weights.h"
#include "program/program.h"

namespace temper {

// Gives every trained weight the numbers of its average, also the copy that is computed with, and its average those of
// the weight. A second call restores both to the bit. `program` and `buffer` as TrainingState's. REQUIRES: the run
// keeps averages, nothing reads this memory or writes it. Memory: some MiB. Cost: two passes over averages and weights.
Status ExchangeAverages(const Program& program, const BufferLookup& buffer);

}  // namespace temper
