#include "config/import_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "config/import_for_test.h"
#include "config/run_options.h"

namespace temper::import_test::import_rows_test {
namespace {

bool Has(const std::string& yaml, const std::string& text) {
  return yaml.find(text) != yaml.npos;
}

// None of the three packs unless it is asked to (LLaMA-Factory's pretraining and Axolotl's streams apart).
TEST(ImportRows, ARecipeThatDoesNotPackStaysUnpacked) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  for (const Tool* tool : {&kLlamaFactory, &kAxolotl, &kTrl}) {
    const std::string open = tool->Run("", env)->yaml;
    EXPECT_TRUE(Has(open, fmt::format("\npacking: false  # the default of {}\n", tool->name))) << open;
    EXPECT_TRUE(Has(open, fmt::format("#   packing is not given, and {} does not pack by default", tool->name)))
        << open;
    EXPECT_TRUE(Has(open, "packing: true puts several into a row")) << open;
    const std::string key = tool == &kAxolotl ? "sample_packing" : "packing";
    const std::string off = tool->With(key, "false", env), on = tool->With(key, "true", env);
    EXPECT_TRUE(Has(off, "\npacking: false")) << off;
    EXPECT_TRUE(Has(off, "#   line 1, " + key + ": false: each document has a row of its own")) << off;
    EXPECT_TRUE(Has(on, "\npacking: true")) << on;
  }
  const std::string plain = kLlamaFactory.With("stage", "pt", env);
  EXPECT_FALSE(Has(plain, "packing: false")) << plain;
  const std::string stream = kAxolotl.With("datasets: null\npretraining_dataset", "[d.jsonl]", env);
  EXPECT_FALSE(Has(stream, "packing: false")) << stream;
  EXPECT_TRUE(Has(stream, "those that Axolotl joins see each other")) << stream;
  for (const auto& [neat, see] : {std::pair{"true", false}, {"false", true}}) {
    const std::string yaml = kLlamaFactory.With("packing", fmt::format("true\nneat_packing: {}", neat), env);
    EXPECT_EQ(Has(yaml, "see each other without neat_packing"), see) << yaml;
  }
}

TEST(ImportRows, WhatIsSaidOfPaddingIsTrueOfTheRun) {
  MemoryEnv env;
  const std::string whole = "packed rows are always max_seq_len long", few = "the shortest of a few lengths";
  const std::string packed = kAxolotl.With("sample_packing: true\npad_to_sequence_len", "true", env);
  EXPECT_TRUE(Has(packed, "pad_to_sequence_len: true: " + whole)) << packed;
  EXPECT_FALSE(Has(packed, few)) << packed;
  const auto unpacked = [&](const char* pad) {
    return kAxolotl.With("sample_packing: false\npad_to_sequence_len", pad, env);
  };
  EXPECT_TRUE(Has(unpacked("true"), "\npad_to_max_seq_len: true  # pad_to_sequence_len\n")) << unpacked("true");
  EXPECT_FALSE(Has(unpacked("true"), few)) << unpacked("true");
  EXPECT_TRUE(Has(unpacked("false"), "pad_to_sequence_len: false: rows are padded to " + few)) << unpacked("false");
  EXPECT_FALSE(Has(unpacked("false"), "pad_to_max_seq_len")) << unpacked("false");
}

TEST(ImportRows, LongRowsBecomeWhatTheToolMakesOfThem) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  const auto strategy = [&](const std::string& value) { return kAxolotl.With("excess_length_strategy", value, env); };
  EXPECT_TRUE(Has(kAxolotl.Run("", env)->yaml, "\nlong_rows: drop  # the default of Axolotl\n"));
  EXPECT_TRUE(Has(strategy("drop"), "\nlong_rows: drop  # excess_length_strategy\n"));
  EXPECT_TRUE(Has(strategy("raise"), "\nlong_rows: error  # excess_length_strategy\n"));
  EXPECT_FALSE(Has(strategy("truncate"), "\nlong_rows:"));
  const auto typed = [&](const std::string& entries) { return kAxolotl.With("datasets", entries, env); };
  EXPECT_FALSE(Has(typed("[{path: d.jsonl, type: completion}]"), "\nlong_rows:")) << "texts are split there, too";
  const std::string mixed = typed("[{path: d.jsonl, type: completion}, {path: e.jsonl, type: chat_template}]");
  EXPECT_TRUE(Has(mixed, "\nlong_rows: drop")) << mixed;
  EXPECT_TRUE(Has(mixed, "long_rows: drop counts for texts, too; Axolotl splits those of type completion")) << mixed;
  EXPECT_TRUE(Has(kLlamaFactory.Run("", env)->yaml, "\nlong_rows: proportional  # as LLaMA-Factory cuts rows\n"));
  EXPECT_FALSE(Has(kLlamaFactory.With("stage", "pt", env), "\nlong_rows:"));
  const auto pairs = kLlamaFactory.Run("stage: dpo\n", env);
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  EXPECT_FALSE(Has(pairs->yaml, "\nlong_rows:")) << pairs->yaml;
  EXPECT_TRUE(Has(pairs->yaml, "here each answer is cut at the end")) << pairs->yaml;
  EXPECT_TRUE(Has(kTrl.Run("", env)->yaml, "\nlong_rows: cut  # as TRL cuts at max_length\n"));
  EXPECT_FALSE(Has(kTrl.With("packing_strategy", "wrapped\npacking: true", env), "\nlong_rows:"));
}

TEST(ImportRows, EvaluationPacksAsTrainingDoes) {
  MemoryEnv env;
  const auto with = [&](const std::string& value, const std::string& packing) {
    return kAxolotl.With("sample_packing: " + packing + "\neval_sample_packing", value, env);
  };
  EXPECT_TRUE(
      Has(with("true", "true"), "# Not needed:\n#   line 2, eval_sample_packing: true: evaluation packs where"));
  EXPECT_TRUE(Has(with("false", "true"), "# No equivalent:\n#   line 2, eval_sample_packing: false: evaluation packs"));
  const std::string wrapped = kTrl.With("packing: true\npacking_strategy", "wrapped", env);
  EXPECT_TRUE(Has(wrapped, "packing_strategy: wrapped: documents are packed whole, by best fit")) << wrapped;
}

TEST(ImportRows, ReasonsFitTheirSettings) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  for (const auto& [setting, value, why] :
       {std::tuple{"average_tokens_across_devices", "false", "the mean over the tokens of all ranks together"},
        {"ddp_timeout", "180000000", "watch.idle_seconds"},
        {"dataloader_drop_last", "true", "the rows left over at the end of an epoch make a smaller step"},
        {"save_on_each_node", "true", "each rank saves its part"}}) {
    EXPECT_TRUE(Has(kLlamaFactory.With(setting, value, env), fmt::format("{}: {}: ", setting, value))) << setting;
    EXPECT_TRUE(Has(kLlamaFactory.With(setting, value, env), why)) << setting;
  }
  EXPECT_TRUE(Has(kAxolotl.With("shuffle_merged_datasets", "false", env), "all rows are shuffled together"));
  EXPECT_TRUE(
      Has(kAxolotl.With("tokenizer_config", "m", env), "# Not needed:\n#   line 1, tokenizer_config: m: it is"));
  EXPECT_TRUE(
      Has(kAxolotl.With("tokenizer_config", "other", env), "# No equivalent:\n#   line 1, tokenizer_config: other"));
}

TEST(ImportRows, TheStepOfSeveralProcessesIsCompared) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  const std::string options =
      "--model_name_or_path m --dataset_name d.jsonl --per_device_train_batch_size 2 --gradient_accumulation_steps 8";
  for (const auto& [launcher, processes] : {std::pair{"accelerate launch --num_processes 4", 4},
                                            {"torchrun --nnodes 2 --nproc_per_node=4", 8},
                                            {"CUDA_VISIBLE_DEVICES=0,1 accelerate launch", 2}}) {
    const auto run = ImportRun(env, fmt::format("{} sft.py {}", launcher, options), "f.sh", {});
    ASSERT_TRUE(run.ok()) << run.status().message();
    EXPECT_TRUE(Has(run->yaml, fmt::format("{} processes have {} rows a step; one rank has 16 here: "
                                           "gradient_accumulation_steps: {}",
                                           processes, processes * 16, processes * 8)))
        << run->yaml;
  }
  const std::string sharded =
      kLlamaFactory.With("gradient_accumulation_steps", "2\ndeepspeed: examples/ds_z3_config.json", env);
  EXPECT_TRUE(Has(sharded, "deepspeed: examples/ds_z3_config.json: a step of N processes has N times the rows"))
      << sharded;
  env.files["ds.yaml"] = "num_processes: 8\n";
  const std::string launch = "accelerate launch --config_file {} sft.py " + options;
  EXPECT_TRUE(Has(ImportRun(env, fmt::format(fmt::runtime(launch), "ds.yaml"), "f.sh", {})->yaml,
                  "config_file: ds.yaml: 8 processes have 128 rows a step"));
  EXPECT_TRUE(Has(ImportRun(env, fmt::format(fmt::runtime(launch), "none.yaml"), "f.sh", {})->yaml,
                  "config_file: none.yaml: a step of N processes has N times the rows"));
  const auto one = ImportRun(env, "accelerate launch --num_processes 1 sft.py " + options, "f.sh", {});
  EXPECT_FALSE(Has(one->yaml, "processes")) << one->yaml;
}

}  // namespace
}  // namespace temper::import_test::import_rows_test
