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

// Half of the base lives on the disk: what confirmed the choice is the plan, and need not be made again.
TEST(CutOnCluster, GivesThePlanThatConfirmedItsChoice) {
  const auto model = Must(ModelFromConfig(*FindKnownModel("llama-3.1-8b"), "llama-3.1-8b"));
  RunConfig config;
  config.model.model = "config.json";
  config.batch.auto_cut = true;
  config.batch.gradient_accumulation_steps = 8;
  config = Must(Resolve(config, {.has_bf16 = true, .today = "2026-01-01", .model_max_seq_len = 131072})).config;
  Cluster cluster = Must(OpenCluster(PosixEnv(), "RTX3090-24"));
  cluster.memory = GiB(6);
  cluster.host_memory = GiB(4);
  const Planner planner(*model, std::move(cluster));
  std::map<int64_t, PlannedRun> plans;
  const BatchCut cut = Must(ChooseBatchCut(config, CutOnCluster(planner, config, /*ranks=*/1, &plans)));
  ASSERT_GT(cut.rows, 1);
  ASSERT_TRUE(plans.contains(cut.rows));
  ApplyCut(cut, &config);
  const PlannedRun planned = Must(planner.Plan(config, /*ranks=*/1));
  EXPECT_GT(planned.run.train().disk.bytes, GiB(4));
  EXPECT_EQ(ProgramHash(plans.at(cut.rows).run.train()), ProgramHash(planned.run.train()));
}

// Each step of KTO also scores its answers after other prompts, by the Program "reference".
TEST(Planner, AStepOfKtoHasThePassesOfItsAnswersToOtherPrompts) {
  const auto model = Must(ModelFromConfig(*FindKnownModel("qwen2.5-0.5b"), "qwen2.5-0.5b"));
  RunConfig config;
  config.model.model = "config.json";
  config.objective.rule = &Kto();
  config.batch.auto_cut = false;
  config.batch.per_device_train_batch_size = 2;
  config.batch.per_device_eval_batch_size = 1;
  config.batch.gradient_accumulation_steps = 3;
  config.data.max_seq_len = 512;
  config = Must(Resolve(config, {.has_bf16 = true, .today = "2026-01-01", .model_max_seq_len = 32768})).config;
  const Cluster cluster = Must(OpenCluster(PosixEnv(), "8xMI300X"));
  const Planner planner(*model, cluster);
  const PlannedRun planned = Must(planner.Plan(config, /*ranks=*/1));
  const Mesh& mesh = planned.run.mesh.mesh;
  const double own = Simulate(planned.run.train(), mesh, cluster).step.v;
  const double pass = Simulate(*planned.run.programs.Find(ProgramName(ProgramKind::kReference)), mesh, cluster).step.v;
  EXPECT_GT(pass, 0.05 * own);
  EXPECT_NEAR(planned.forecast.simulation.step.v, own + 6 * pass, 1e-9);
}

}  // namespace
}  // namespace temper::planner_test
