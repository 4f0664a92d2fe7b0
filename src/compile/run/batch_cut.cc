#include "compile/run/batch_cut.h"

#include <fmt/core.h>

#include <map>
#include <optional>

#include "base/check.h"
#include "base/quantity.h"

namespace temper {
namespace {

// A larger micro-batch has to gain this part of a step: it takes memory, and forecasts are not more exact.
constexpr double kGain = 0.03;
// The same where other programs want that memory, too: on a laptop eight rows of 1,024 tokens gained 4 %, and took 9
// GiB.
constexpr double kGainOnHost = 0.1;
// What it has to gain over one row where values live in farther tiers, whose moves are forecast less exactly: steps of
// 405 billion parameters over 8 H100 seemed to gain 6 %, and lost 25 %.
constexpr double kGainBeyond = 0.2;
// Beyond a cut that loses as much, larger micro-batches only lose more: memory runs short, or a pipeline empties.
constexpr double kLost = 0.1;

double LeastGain(const CutEstimates& of) {
  return of.shares_memory ? kGainOnHost : kGain;
}
double LeastGainOverOneRow(const CutEstimate& cut, const CutEstimates& of) {
  return cut.spills ? kGainBeyond : LeastGain(of);
}

// The cut with the fewest rows of those that are about as fast as the fastest; what was estimated of others.
struct Compared {
  std::optional<BatchCut> best;
  std::map<int64_t, CutEstimate> by_rows;
  std::optional<Status> refused;  // of the smallest micro-batch

  // How many times as fast it is as micro-batches of one row.
  double GainOf(int64_t rows) const {
    const auto one = by_rows.find(1), more = by_rows.find(rows);
    return one == by_rows.end() || !one->second.fits ? 1 : one->second.step.v / more->second.step.v;
  }
};

Compared Compare(const RunConfig& config, const CutEstimates& estimates) {
  const EstimateCut& estimate = estimates.quick ? estimates.quick : estimates.whole;
  const int64_t rows_of_step = config.batch.gradient_accumulation_steps;
  Compared all;
  CutEstimate best;
  for (int64_t rows = 1; rows <= rows_of_step; ++rows) {
    if (rows_of_step % rows != 0) continue;
    const BatchCut cut{.rows = rows, .micro_batches = rows_of_step / rows};
    RunConfig run = config;
    ApplyCut(cut, &run);
    const Result<CutEstimate> estimated = estimate(run);
    if (!estimated.ok()) {
      if (!all.refused) all.refused = estimated.status();
      // What takes too much memory takes more with more rows. A schedule may refuse this number of micro-batches alone.
      if (estimated.status().code() == StatusCode::kOutOfMemory) break;
      continue;
    }
    // Where fewer rows are all in memory, more that are not are slower.
    if (all.best && (!estimated->fits || (estimated->spills && !best.spills))) break;
    all.by_rows[rows] = *estimated;
    const bool lost = all.best && estimated->step.v > best.step.v * (1 + kLost);
    const bool gains = all.best && estimated->step.v < best.step.v * (1 - LeastGain(estimates));
    if (!all.best || (gains && all.GainOf(rows) > 1 + LeastGainOverOneRow(*estimated, estimates))) {
      best = *estimated;
      all.best = cut;
    }
    if (lost || !estimated->fits) break;
  }
  if (all.best) all.best->gain = all.GainOf(all.best->rows);
  return all;
}

// The cut that was chosen by few blocks, or the next one with fewer rows that the whole model confirms.
BatchCut Confirmed(const RunConfig& config, const Compared& quick, const CutEstimates& estimates) {
  const int64_t rows_of_step = config.batch.gradient_accumulation_steps;
  if (quick.best) {
    for (auto at = quick.by_rows.find(quick.best->rows); at != quick.by_rows.begin(); --at) {
      const auto& [rows, expected] = *at;
      const BatchCut cut{.rows = rows, .micro_batches = rows_of_step / rows, .gain = quick.GainOf(rows)};
      if (cut.gain <= 1 + LeastGainOverOneRow(expected, estimates)) continue;
      RunConfig run = config;
      ApplyCut(cut, &run);
      const Result<CutEstimate> is = estimates.whole(run);
      if (is.ok() && is->fits && (expected.spills || !is->spills)) return cut;
    }
  }
  return {.rows = 1, .micro_batches = rows_of_step};
}

}  // namespace

std::string BatchCut::ToString() const {
  const std::string text =
      fmt::format("{} of {}", Counted(micro_batches, "micro-batch", "micro-batches"), Counted(rows, "row"));
  if (gain == 1) return text;
  return text + fmt::format(", estimated {:.2f} times as fast as {} of 1 row", gain, rows * micro_batches);
}

Result<BatchCut> ChooseBatchCut(const RunConfig& config, const CutEstimates& estimates) {
  TEMPER_CHECK(config.batch.auto_cut) << "the batch is cut";
  if (estimates.fixed) return BatchCut{.rows = 1, .micro_batches = config.batch.gradient_accumulation_steps};
  const Compared compared = Compare(config, estimates);
  if (estimates.quick) return Confirmed(config, compared, estimates);
  if (!compared.best) return *compared.refused;
  return *compared.best;
}

void ApplyCut(const BatchCut& cut, RunConfig* config) {
  RunConfig::Batch& batch = config->batch;
  batch.per_device_train_batch_size = cut.rows;
  batch.gradient_accumulation_steps = cut.micro_batches;
  batch.auto_cut = false;
  if (!batch.per_device_eval_batch_size) batch.per_device_eval_batch_size = cut.rows;
}

}  // namespace temper
