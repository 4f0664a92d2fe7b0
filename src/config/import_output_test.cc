#include "config/import_output.h"

#include <gtest/gtest.h>

#include <string>

#include "config/import_for_test.h"

namespace temper::import_test::import_output_test {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST(ImportOutput, ACheckpointOfOursIsContinuedAndNotOverwritten) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  env.files["out/checkpoint-40/manifest.json"] = env.files["out/checkpoint-40/run.yaml"] = "{}";
  env.files["their/checkpoint-40/trainer_state.json"] = "{}";
  const std::string overwrite = "\noverwrite_output_dir: true\noutput_dir: out";
  const std::string ours = kLlamaFactory.With("resume_from_checkpoint", "out/checkpoint-40" + overwrite, env);
  EXPECT_TRUE(Has(ours, "\nresume: out/checkpoint-40  # resume_from_checkpoint\n")) << ours;
  EXPECT_FALSE(Has(ours, "\noverwrite:")) << ours;
  EXPECT_TRUE(Has(ours, "overwrite_output_dir: true: resume_from_checkpoint goes on with what is there")) << ours;
  const std::string newest = kLlamaFactory.With("resume_from_checkpoint", "true" + overwrite, env);
  EXPECT_TRUE(Has(newest, "\nresume: true")) << newest;
  EXPECT_FALSE(Has(newest, "\noverwrite:")) << newest;
  EXPECT_TRUE(Has(kLlamaFactory.With("resume_from_checkpoint", "their/checkpoint-40", env),
                  "this is a checkpoint of another tool, which cannot be continued"));
  EXPECT_TRUE(Has(kLlamaFactory.With("resume_from_checkpoint", "nowhere", env), "there is no such folder"));
  EXPECT_TRUE(Has(kLlamaFactory.With("resume_from_checkpoint", "null" + overwrite, env), "\noverwrite: true"));
}

TEST(ImportOutput, ARunThatIsFollowedElsewhereIsFollowedInTensorBoard) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  for (const char* tracker : {"wandb", "swanlab", "[mlflow]", "all", "tensorboard"}) {
    EXPECT_FALSE(Has(kLlamaFactory.With("report_to", tracker, env), "tensorboard: false")) << tracker;
  }
  EXPECT_TRUE(Has(kLlamaFactory.With("report_to", "none", env), "tensorboard: false  # report_to"));
}

TEST(ImportOutput, AValueThatCannotBeReadIsAnErrorWithItsLine) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  const auto fails = [&](const Tool& tool, const std::string& line, const std::string& why) {
    const auto run = tool.Run("seed: 1\n" + line + "\n", env);
    ASSERT_FALSE(run.ok()) << line << run->yaml;
    EXPECT_TRUE(Has(run.status().message(), "f.yaml line 2, " + line + ": ")) << run.status().message();
    EXPECT_TRUE(Has(run.status().message(), why)) << run.status().message();
  };
  fails(kLlamaFactory, "learning_rate: 0,0002", "should be a number");
  fails(kAxolotl, "sample_packing: flase", "true or false");
  fails(kAxolotl, "bf16: flase", "did you mean false?");
  fails(kAxolotl, "val_set_size: 5%", "should be a number");
  fails(kAxolotl, "saves_per_epoch: often", "a number is expected");
  fails(kLlamaFactory, "max_samples: all", "a number of rows is expected");
  fails(kTrl, "eval_strategy: step", "did you mean steps?");
  fails(kTrl, "lr_scheduler_type: cosin", "did you mean cosine?");
  // What another tool may mean by it has no equivalent.
  EXPECT_TRUE(kTrl.Run("save_strategy: best\nsave_total_limit: 0\n", env).ok());
}

TEST(ImportOutput, AMistypedNameIsShownWithTheToolsOwn) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  EXPECT_TRUE(Has(kLlamaFactory.With("lora_rnak", "8", env),
                  "lora_rnak: 8: this name is not known; did you mean 'lora_rank'?"));
  EXPECT_TRUE(Has(kAxolotl.With("mirco_batch_size", "8", env), "did you mean 'micro_batch_size'?"));
  const std::string far = kAxolotl.With("entirely_of_their_own", "8", env);
  EXPECT_TRUE(Has(far, "this name is not known; it is left out")) << far;
}

TEST(ImportOutput, ReasonsAreThoseOfTheSetting) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  const auto said = [&](const Tool& tool, const std::string& name, const std::string& value) {
    std::string all;
    for (const std::string& line : LinesOf(tool.With(name, value, env))) {
      if (HasWord(line, name)) all += line + "\n";
    }
    return all;
  };
  EXPECT_TRUE(Has(said(kLlamaFactory, "quantization_method", "bitsandbytes"), "it is so here, too"));
  EXPECT_FALSE(Has(said(kTrl, "fp16", "false"), "loss scaling"));
  EXPECT_TRUE(Has(said(kTrl, "run_name", "hello"), "a run has the name of its output_dir"));
  EXPECT_TRUE(Has(said(kLlamaFactory, "compute_accuracy", "true"), "token_accuracy: true  # compute_accuracy"));
  EXPECT_TRUE(Has(said(kTrl, "optim", "rmsprop"), "adamw counts in its place"));
  EXPECT_TRUE(Has(said(kLlamaFactory, "new_special_tokens", "<a>"), "rows of new tokens begin as the mean of all"));
  EXPECT_TRUE(Has(said(kLlamaFactory, "use_muon", "true"), "matrices outside of blocks are AdamW's here"));
  const std::string muon = kLlamaFactory.With("use_muon", "true", env);
  EXPECT_TRUE(Has(muon, "optimizer: muon") && Has(muon, "muon_match_rms_adamw: true")) << muon;
  EXPECT_TRUE(Has(kTrl.With("optim", "adafactor", env), "optimizer: adafactor"));
  EXPECT_TRUE(Has(kLlamaFactory.With("pissa_init", "true", env), "init_lora_weights: pissa  # pissa_init"));
  EXPECT_TRUE(
      Has(kAxolotl.Run("adapter: lora\npeft_init_lora_weights: olora\n", env)->yaml, "init_lora_weights: olora"));
  EXPECT_TRUE(Has(said(kAxolotl, "peft_init_lora_weights", "eva"), "true, pissa or olora"));
  EXPECT_FALSE(Has(kLlamaFactory.With("ddp_timeout", "180000000", env), "# Mesh"));
}

// HfArgumentParser, which reads the command lines of TRL and LLaMA-Factory, has --no_NAME for what is true by default.
TEST(ImportOutput, NegatedOptionsOfCommandLinesAreKnown) {
  MemoryEnv env;
  const auto run = ImportRun(env,
                             "trl sft --model_name_or_path m --dataset_name d.jsonl --no_gradient_checkpointing "
                             "--no_remove_unused_columns",
                             "f.sh", {});
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_FALSE(Has(run->yaml, "not known")) << run->yaml;
  EXPECT_TRUE(Has(run->yaml, "gradient_checkpointing: false")) << run->yaml;
}

TEST(ImportOutput, TokenAccuracyComparesCheckpoints) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  const std::string evaluates = "val_size: 0.1\neval_strategy: steps\nsave_steps: 10\neval_steps: 10\n";
  const auto run = kLlamaFactory.Run(
      evaluates + "load_best_model_at_end: true\nmetric_for_best_model: eval_accuracy\ncompute_accuracy: true\n", env);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_TRUE(Has(run->yaml, "\nmetric_for_best_model: eval_token_accuracy\n")) << run->yaml;
  EXPECT_TRUE(Has(run->yaml, "\ntoken_accuracy: true")) << run->yaml;
}

}  // namespace
}  // namespace temper::import_test::import_output_test
