#include "settings/run_config.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "config/run_options.h"
#include "config/validate.h"

namespace temper::run_config_test {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

RunConfig Valid() {
  RunConfig c;
  c.model.model = "model";
  c.data.data = {{.path = "data.jsonl"}};
  c.output.output_dir = "out";
  return c;
}

// The message of the error that `change` to a valid configuration causes.
template <class F>
std::string ErrorOf(F change) {
  RunConfig c = Valid();
  change(c);
  const Status status = Validate(c, Purpose::kTrain);
  EXPECT_FALSE(status.ok());
  return status.message();
}

TEST(RunConfig, DefaultsAreAsDocumented) {
  RunFacts facts;
  facts.has_bf16 = true;
  facts.cpu_cores = 2;
  facts.model_max_seq_len = 8192;
  const auto run = Resolve(Valid(), facts);
  ASSERT_TRUE(run.ok());
  const RunConfig& c = run->config;
  EXPECT_EQ(c.model.method, TrainMethod::kLora);
  EXPECT_EQ(c.model.dtype, ComputeType::kBf16);
  EXPECT_EQ(c.lora.r, 16);
  EXPECT_EQ(c.lora.alpha, 32);
  EXPECT_EQ(c.lora.dropout, 0);
  EXPECT_EQ(std::get<std::string>(c.lora.target_modules), "all-linear");
  EXPECT_EQ(c.optimizer.learning_rate, 2e-4);
  EXPECT_EQ(c.length.lr_scheduler_type, ScheduleKind::kCosine);
  EXPECT_EQ(c.length.warmup_ratio, 0.03);
  EXPECT_EQ(c.optimizer.weight_decay, 0);
  EXPECT_EQ(c.optimizer.max_grad_norm, 1);
  EXPECT_EQ(c.optimizer.settings.Get("adam_beta1"), 0.9);
  EXPECT_EQ(c.optimizer.settings.Get("adam_beta2"), 0.999);
  EXPECT_EQ(c.optimizer.settings.Get("adam_epsilon"), 1e-8);
  EXPECT_EQ(c.batch.per_device_train_batch_size, 1);
  EXPECT_EQ(c.batch.gradient_accumulation_steps, 8);
  EXPECT_EQ(c.length.num_train_epochs, 3);
  EXPECT_EQ(c.data.max_seq_len, 2048);
  EXPECT_TRUE(c.data.packing);
  EXPECT_EQ(c.output.logging_steps, 1);
  EXPECT_EQ(c.output.save_steps, 500);
  EXPECT_EQ(c.output.save_total_limit, std::nullopt);
  EXPECT_EQ(c.output.eval_steps, std::nullopt);
  EXPECT_EQ(c.machine.seed, 42);
  EXPECT_EQ(c.machine.threads, 2);
}

TEST(RunConfig, ResolvesByMethodModelAndMachine) {
  RunConfig c = Valid();
  c.model.method = TrainMethod::kFull;
  c.data.eval_fraction = 0.1;
  c.length.max_steps = -1;
  RunFacts facts;
  facts.model_max_seq_len = 512;
  const auto run = Resolve(c, facts);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->config.optimizer.learning_rate, 2e-5);
  EXPECT_EQ(run->config.model.dtype, ComputeType::kF32);
  EXPECT_EQ(run->config.data.max_seq_len, 512);
  EXPECT_EQ(run->config.output.eval_steps, 500);
  EXPECT_EQ(run->config.length.max_steps, std::nullopt);
  EXPECT_TRUE(run->notes.contains("dtype"));
  EXPECT_TRUE(run->notes.contains("learning_rate"));
  EXPECT_TRUE(Validate(run->config, Purpose::kTrain).ok());
}

TEST(RunConfig, ResolvingTwiceChangesNothing) {
  RunConfig c = Valid();
  c.data.eval_data = {{.path = "e"}};
  RunFacts facts;
  facts.cpu_cores = 3;
  const auto once = Resolve(c, facts);
  ASSERT_TRUE(once.ok());
  facts.has_bf16 = true;  // a resolved run keeps its type on another machine
  facts.cpu_cores = 5;
  const auto twice = Resolve(once->config, facts);
  ASSERT_TRUE(twice.ok());
  EXPECT_TRUE(once->config == twice->config);
  EXPECT_TRUE(twice->notes.empty());
  const auto read = ParseRunConfig(PrintRunConfig(once->config, once->notes), "saved");
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(*read == once->config);
}

TEST(RunConfig, KeepsWhatTheUserChose) {
  RunConfig c = Valid();
  c.optimizer.learning_rate = 0.5;
  c.model.dtype = ComputeType::kBf16;
  c.data.max_seq_len = 4096;
  RunFacts facts;
  facts.model_max_seq_len = 2048;
  const auto run = Resolve(c, facts);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->config.optimizer.learning_rate, 0.5);
  EXPECT_EQ(run->config.model.dtype, ComputeType::kBf16);
  EXPECT_EQ(run->config.data.max_seq_len, 4096);
  EXPECT_EQ(run->warnings.size(), 2u) << "slow bf16, and rows beyond the model's positions";
  facts.positions_are_learned = true;
  EXPECT_HAS(Resolve(c, facts).status().message(), "max_seq_len: 2048");
}

TEST(RunConfig, ContinuesWithTheAdaptersConfiguration) {
  RunConfig c = Valid();
  c.model.adapter = "old";
  RunFacts facts;
  facts.adapter = LoraConfig{.r = 8, .alpha = 8, .target_modules = std::vector<std::string>{"q_proj"}};
  c.lora.dropout = 0.1;
  auto run = Resolve(c, facts);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->config.lora.r, 8);
  EXPECT_EQ(run->config.lora.dropout, 0.1);
  EXPECT_TRUE(Resolve(run->config, facts).ok()) << "a resolved run resolves again";
  c.lora.r = 32;
  EXPECT_HAS(Resolve(c, facts).status().message(), "remove the lora section");
}

TEST(RunConfig, MistakesNameTheRemedy) {
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.model.model.clear(); }), "--model");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.data.data.clear(); }), "--data");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.output.output_dir.clear(); }), "--output_dir");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.optimizer.learning_rate = -1; }), "learning_rate should be at least 0");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.lora.r = 0; }), "lora.r should be at least 1");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.lora.ensure_weight_tying = true; }), "no effect without train_modules");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.optimizer.lora_plus_ratio = 0; }), "lora_plus_ratio should be above 0");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.optimizer.learning_rate = 0;
               c.optimizer.groups = {{.modules = {"a"}, .learning_rate = 1}};
             }),
             "optimizer_groups has a learning_rate, but that of the run");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.model.method = TrainMethod::kFull;
               c.lora.modules_to_save = "lm_head";
             }),
             "train_modules is set, but method is full");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.model.method = TrainMethod::kFull;
               c.optimizer.lora_plus_ratio = 4;
             }),
             "lora_plus_ratio is set, but method is full");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.lora.rank_pattern = {{"q", 0}}; }), "lora.rank_pattern");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.batch.gradient_accumulation_steps = 0; }), "gradient_accumulation_steps");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.length.max_steps = 0; }), "max_steps is 0");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.model.from_scratch = true; }), "method: full");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.lora.target_modules = std::vector<std::string>(); }), "all-linear");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.model.method = TrainMethod::kFull;
               c.lora.r = 4;
             }),
             "remove the lora section");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.model.method = TrainMethod::kFull;
               c.model.adapter = "a";
             }),
             "method: lora");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.data.eval_data = {{.path = "e"}};
               c.data.eval_fraction = 0.1;
             }),
             "remove the other");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.output.eval_steps = 5; }), "eval_data");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.output.load_best_model_at_end = true; }), "eval_loss");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.output.load_best_model_at_end = true;
               c.data.eval_data = {{.path = "e"}};
               c.output.eval_steps = 300;
             }),
             "multiple of eval_steps");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.output.eval_strategy = CadenceStrategy::kEpoch; }), "eval_strategy is set");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.output.save_steps = 2.5; }), "save_steps is 2.5: give a whole number");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.output.load_best_model_at_end = true;
               c.data.eval_fraction = 0.1;
               c.output.save_strategy = CadenceStrategy::kNo;
             }),
             "save_strategy: epoch");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.output.load_best_model_at_end = true;
               c.data.eval_fraction = 0.1;
               c.output.eval_strategy = CadenceStrategy::kEpoch;
             }),
             "eval_strategy and save_strategy should be the same");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.output.resume = "";
               c.output.overwrite = true;
             }),
             "remove one of the two");
}

TEST(RunConfig, RecomputeBlocksNeedsARecomputeMode) {
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.machine.recompute_blocks = 3; }), "memory.recompute is auto");
}

TEST(RunConfig, ScheduleSettingsWithoutEffectAreErrors) {
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.length.kwargs.min_lr = 1e-6; }), "lr_scheduler_type: cosine_with_min_lr");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.length.kwargs.num_decay_steps = 6; }), "warmup_stable_decay");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.length.kwargs.decay_type = RampShape::kCosine;
               c.length.kwargs.min_lr_ratio = 0;
             }),
             "min_lr_ratio has no effect");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.length.lr_scheduler_type = ScheduleKind::kCosineWithMinLr; }), "min_lr_rate");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.length.lr_scheduler_type = ScheduleKind::kWarmupStableDecay; }),
             "num_decay_steps");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.length.lr_scheduler_type = ScheduleKind::kConstant;
               c.length.warmup_steps = 3;
             }),
             "constant_with_warmup");
}

TEST(RunConfig, WarnsOfSgdWithTheLearningRateOfAdamw) {
  RunConfig c = Valid();
  c.optimizer.rule = UpdateRuleOf(Op::kSgd);
  const auto silent = Resolve(c, RunFacts{.has_bf16 = true});
  ASSERT_TRUE(silent.ok());
  ASSERT_EQ(silent->warnings.size(), 1u);
  EXPECT_HAS(silent->warnings[0], "learning_rate 0.0002 is a default for optimizer: adamw");
  c.optimizer.learning_rate = 0.1;
  EXPECT_TRUE(Resolve(c, RunFacts{.has_bf16 = true})->warnings.empty());
}

TEST(RunConfig, SettingsOfAnotherOptimizerAreErrors) {
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.optimizer.settings.Set("sgd_momentum", 0.5); }),
             "sgd_momentum has no effect on optimizer: adamw");
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.optimizer.settings.Set("sgd_nesterov", 1); }), "set optimizer: sgd");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.optimizer.rule = UpdateRuleOf(Op::kSgd);
               c.optimizer.settings.Set("adam_beta2", 0.95);
             }),
             "adam_beta2 has no effect on optimizer: sgd: remove it, or set optimizer: adamw");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.optimizer.rule = UpdateRuleOf(Op::kSgd);
               c.optimizer.settings.Set("sgd_momentum", 0);
               c.optimizer.settings.Set("sgd_nesterov", 1);
             }),
             "sgd_momentum is 0");
  // Both leave some values to adamw, whose settings are then the run's, too.
  for (const Op op : {Op::kAdamw8bit, Op::kMuon}) {
    RunConfig c = Valid();
    c.optimizer.rule = UpdateRuleOf(op);
    c.optimizer.settings.Set("adam_beta2", 0.95);
    EXPECT_TRUE(Validate(c, Purpose::kTrain).ok());
  }
}

TEST(RunConfig, NeverDeletesOrOverwritesItsOwnInputs) {
  EXPECT_HAS(ErrorOf([](RunConfig& c) { c.output.output_dir = "./model/"; }), "choose another output_dir");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.output.overwrite = true;
               c.model.model = "out/checkpoint-5";
             }),
             "would delete the model");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.output.overwrite = true;
               c.data.data = {{.path = "a.jsonl"}, {.path = "x/../out/data.jsonl"}};
             }),
             "would delete the data");
  EXPECT_HAS(ErrorOf([](RunConfig& c) {
               c.output.overwrite = true;
               c.data.data = {{.path = std::filesystem::current_path().string() + "/out/data.jsonl"}};
             }),
             "would delete the data");
  RunConfig c = Valid();
  c.output.overwrite = true;
  c.model.model = "outer";
  EXPECT_TRUE(Validate(c, Purpose::kTrain).ok()) << "a name that only begins the same is another folder";
}

TEST(RunConfig, PlanNeedsOnlyAModel) {
  RunConfig c;
  c.model.model = "m";
  EXPECT_TRUE(Validate(c, Purpose::kPlan).ok());
  EXPECT_FALSE(Validate(c, Purpose::kTrain).ok());
}

TEST(RunConfig, ScheduleFollowsItsKeys) {
  RunConfig c = Valid();
  c.optimizer.learning_rate = 1e-3;
  c.length.lr_scheduler_type = ScheduleKind::kCosineWithMinLr;
  c.length.kwargs.min_lr = 1e-4;
  c.length.warmup_ratio = 0.1;
  auto s = ScheduleOf(c, 101);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->warmup_steps, 11);
  EXPECT_DOUBLE_EQ(s->At(101), 1e-4);
  c.length.warmup_steps = 3;
  s = ScheduleOf(c, 101);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->warmup_steps, 3) << "warmup_steps wins";
  c.length.warmup_steps = 200;
  ASSERT_TRUE(ScheduleOf(c, 101).ok());
  EXPECT_HAS(StepWarnings(c, 101).at(0), "200 warmup steps are more than the run's 101");
  // What does not fit into max_steps is found before any data is read.
  RunConfig decay = Valid();
  decay.length.lr_scheduler_type = ScheduleKind::kWarmupStableDecay;
  decay.length.kwargs.num_decay_steps = 6;
  decay.length.max_steps = 5;
  EXPECT_HAS(Resolve(decay, {}).status().message(), "more than the run's 5 steps");
  c.length.kwargs.min_lr = 1e-2;
  EXPECT_HAS(Resolve(c, {}).status().message(), "above learning_rate");
}

TEST(RunConfig, WarnsOfShortRuns) {
  RunConfig c = Resolve(Valid(), {})->config;
  EXPECT_HAS(StepWarnings(c, 15).at(0), "too few to learn much: lower gradient_accumulation_steps (now 8), or raise");
  EXPECT_TRUE(StepWarnings(c, 20).empty());
  // Where packing made it short, that is the first remedy.
  EXPECT_HAS(StepWarnings(c, 6, {.per_row = 8.1, .steps_without = 48}).at(0),
             "too few to learn much: packing puts 8 documents into a row, packing: false makes it 48 steps, or lower");
  EXPECT_EQ(StepWarnings(c, 6, {.per_row = 1.5, .steps_without = 9}), StepWarnings(c, 6));
  c.length.max_steps = 7;
  EXPECT_HAS(StepWarnings(c, 7).at(0), "too few to learn much: raise max_steps");
}

TEST(RunConfig, ThePositionsOfAModelAreThoseOfAnAnswerNotOfAPair) {
  RunFacts facts;
  facts.has_bf16 = true;
  facts.model_max_seq_len = 512;
  RunConfig c = Valid();
  c.data.max_seq_len = 1024;
  EXPECT_HAS(Resolve(c, facts)->warnings.at(0), "max_seq_len 1024 is more than the model's 512 positions");
  c.objective.rule = &Dpo();
  EXPECT_TRUE(Resolve(c, facts)->warnings.empty());
  c.data.max_seq_len = 1026;
  EXPECT_HAS(Resolve(c, facts)->warnings.at(0), "513 each with its prompt");
}

TEST(RunConfig, ABaseThatIsStoredAsNf4IsKeptSoAndNotTrained) {
  const RunFacts facts = {.has_bf16 = true, .modules_format = ElementFormat::Nf4()};
  RunConfig c = Valid();
  const auto run = Resolve(c, facts);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->config.model.base_dtype, BaseType::kNf4);
  EXPECT_TRUE(Resolve(run->config, facts).ok());
  c.model.base_dtype = BaseType::kInt8;
  EXPECT_HAS(Resolve(c, facts).status().message(), "files hold nf4: remove base_dtype");
  c = Valid();
  c.model.method = TrainMethod::kFull;
  EXPECT_HAS(Resolve(c, facts).status().message(), "stored as nf4, which method: full cannot train");
}

TEST(RunConfig, AQuantisedBaseIsComputedInBf16) {
  for (const BaseType base : {BaseType::kInt8, BaseType::kNf4}) {
    RunConfig c = Valid();
    c.model.base_dtype = base;
    for (const RunFacts& facts : {RunFacts{.has_bf16 = false}, {.has_bf16 = true, .device = DeviceChoice::kGpu}}) {
      const auto run = Resolve(c, facts);
      ASSERT_TRUE(run.ok()) << run.status().message();
      EXPECT_EQ(run->config.model.dtype, ComputeType::kBf16) << "also where f32 is faster";
      EXPECT_TRUE(Resolve(run->config, facts).ok());
    }
    c.model.dtype = ComputeType::kF32;
    EXPECT_HAS(Resolve(c, {.has_bf16 = true}).status().message(), "set dtype: bf16");
  }
}

}  // namespace
}  // namespace temper::run_config_test
