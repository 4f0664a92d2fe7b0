#include "plan/planner.h"

#include <gtest/gtest.h>

#include "base/env.h"
#include "model/families.h"
#include "model/known_models.h"

namespace temper::planner_test {
namespace {

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}

// 8 GPUs gather the base for each micro-batch: the forecast of fewer and larger ones, from few blocks, is that of whole
// plans, and the cut is as much faster as it says.
TEST(CutOnCluster, PromisesWhatItsPlanKeeps) {
  const auto model = Must(ModelFromConfig(*FindKnownModel("llama-3.1-8b"), "llama-3.1-8b"));
  RunConfig config;
  config.model.model = "config.json";
  config.batch.auto_cut = true;
  config.batch.gradient_accumulation_steps = 8;
  config.mesh.fsdp = 8;
  config = Must(Resolve(config, {.has_bf16 = true, .today = "2026-01-01", .model_max_seq_len = 131072})).config;
  const Planner planner(*model, Must(OpenCluster(PosixEnv(), "8xMI300X")));
  const BatchCut cut = Must(ChooseBatchCut(config, CutOnCluster(planner, config, /*ranks=*/8)));
  EXPECT_GT(cut.rows, 1);
  const auto seconds_of = [&](const BatchCut& one) {
    RunConfig run = config;
    ApplyCut(one, &run);
    const PlannedRun planned = Must(planner.Plan(run, /*ranks=*/8));
    EXPECT_TRUE(planned.forecast.fits);
    return planned.forecast.simulation.step.v;
  };
  const double gained = seconds_of({.rows = 1, .micro_batches = 8}) / seconds_of(cut);
  EXPECT_GT(gained, 1.1);
  EXPECT_NEAR(cut.gain, gained, 0.02 * gained);
}

}  // namespace
}  // namespace temper::planner_test
