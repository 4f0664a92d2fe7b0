// Recipes for preferences and reward models. What the tools' settings mean was read from their sources
// (config/foreign_task.h); names, values and defaults are those of tests/foreign_names/names.json.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "config/import_for_test.h"
#include "config/run_options.h"

namespace temper::import_test::import_task_test {
namespace {

void ExpectLines(const std::string& yaml, const std::vector<std::string>& lines) {
  const std::set<std::string> found = LinesOf(yaml);
  for (const std::string& line : lines) EXPECT_TRUE(found.contains(line)) << line << "\n" << yaml;
}

MemoryEnv WithPairs() {
  return WithDatasetInfo({{"file_name", "d.json"},
                          {"ranking", true},
                          {"columns", {{"prompt", "frage"}, {"chosen", "gut"}, {"rejected", "rejected"}}}});
}

TEST(ImportTask, ARecipeOfLlamaFactoryBecomesARunOnPairs) {
  MemoryEnv env = WithPairs();
  const auto run = kLlamaFactory.Run(
      "stage: dpo\nfinetuning_type: lora\npref_beta: 0.2\npref_loss: hinge\npref_ftx: 0.5\nref_model: other\n"
      "cutoff_len: 1000\n",
      env);
  ASSERT_TRUE(run.ok()) << run.status().message();
  ExpectLines(run->yaml,
              {"task: dpo  # stage", "  beta: 0.2  # pref_beta", "  loss_type: hinge  # pref_loss",
               "  rpo_alpha: 0.5  # pref_ftx", "reference: other  # ref_model", "max_seq_len: 2000  # cutoff_len"});
  EXPECT_NE(run->yaml.find("columns: {chosen: gut, instruction: frage}"), std::string::npos) << run->yaml;
  EXPECT_TRUE(run->lost.empty()) << run->yaml;
  EXPECT_EQ(run->changed.size(), 4u) << "pref_ftx, cutoff_len, packing, long rows: " << run->yaml;
  ExpectLines(kLlamaFactory.Run("stage: dpo\n", env)->yaml, {"max_seq_len: 4096  # the default of LLaMA-Factory",
                                                             "learning_rate: 5.0e-05  # the default of LLaMA-Factory"});
}

TEST(ImportTask, TheLossOfLlamaFactoryChoosesTheTask) {
  MemoryEnv env = WithPairs();
  ExpectLines(kLlamaFactory.Run("stage: dpo\npref_loss: simpo\npref_beta: 2\nsimpo_gamma: 1\n", env)->yaml,
              {"task: simpo  # stage", "  beta: 2  # pref_beta", "  simpo_gamma: 1  # simpo_gamma"});
  const auto orpo = kLlamaFactory.Run("stage: dpo\npref_loss: orpo\nref_model: m\n", env);
  ExpectLines(orpo->yaml, {"task: orpo  # stage", "#   line 3, ref_model: m: task orpo compares with no other model"});
  EXPECT_NE(orpo->yaml.find("LLaMA-Factory takes each chosen answer's own mean"), std::string::npos);
  ExpectLines(kLlamaFactory.Run("stage: rm\n", env)->yaml, {"task: reward  # stage"});
  MemoryEnv rated = WithDatasetInfo(
      {{"file_name", "d.json"}, {"columns", {{"prompt", "instruction"}, {"response", "output"}, {"kto_tag", "good"}}}});
  const auto kto = kLlamaFactory.Run("stage: kto\nkto_chosen_weight: 1.5\ncutoff_len: 100\n", rated);
  ExpectLines(kto->yaml,
              {"task: kto  # stage", "  desirable_weight: 1.5  # kto_chosen_weight", "max_seq_len: 100  # cutoff_len"});
  EXPECT_NE(kto->yaml.find("columns: {label: good}"), std::string::npos) << kto->yaml;
}

TEST(ImportTask, RecipesOfAxolotl) {
  MemoryEnv env;
  const auto run = kAxolotl.Run(
      "rl: dpo\nrl_beta: 0.3\nsequence_len: 512\ndatasets:\n- path: d.jsonl\n  type: chatml.argilla\n  split: train\n",
      env);
  ASSERT_TRUE(run.ok()) << run.status().message();
  ExpectLines(run->yaml, {"task: dpo  # rl", "  beta: 0.3  # rl_beta", "max_seq_len: 1024  # sequence_len"});
  EXPECT_NE(run->yaml.find("columns: {chosen: chosen_response, rejected: rejected_response}"), std::string::npos)
      << run->yaml;
  EXPECT_TRUE(run->lost.empty()) << run->yaml;
  ExpectLines(kAxolotl.Run("rl: ipo\n", env)->yaml, {"task: dpo  # rl", "  loss_type: ipo  # rl"});
  ExpectLines(kAxolotl.Run("rl: simpo\nsimpo_gamma: 1\n", env)->yaml,
              {"task: simpo  # rl", "  simpo_gamma: 1  # simpo_gamma", "  cpo_alpha: 1  # the default of Axolotl"});
  ExpectLines(kAxolotl.Run("rl: orpo\norpo_alpha: 0.2\n", env)->yaml,
              {"task: orpo  # rl", "  beta: 0.2  # orpo_alpha"});
  ExpectLines(kAxolotl.Run("rl: orpo\ntrl: {beta: 0.2, max_completion_length: 5}\n", env)->yaml,
              {"  beta: 0.2  # trl"});
  ExpectLines(kAxolotl.Run("rl: kto\nkto_undesirable_weight: 0.5\n", env)->yaml,
              {"task: kto  # rl", "  undesirable_weight: 0.5  # kto_undesirable_weight"});
  ExpectLines(kAxolotl.Run("reward_model: true\ncenter_rewards_coefficient: 0.01\n", env)->yaml,
              {"task: reward  # reward_model", "  center_rewards_coefficient: 0.01  # center_rewards_coefficient"});
  ExpectLines(
      kAxolotl
          .Run("rl: dpo\ndpo_loss_type: [robust, sft]\ndpo_loss_weights: [1, 0.5]\ndpo_label_smoothing: 0.1\n", env)
          ->yaml,
      {"  loss_type: robust  # dpo_loss_type", "  rpo_alpha: 0.5  # dpo_loss_type",
       "  label_smoothing: 0.1  # dpo_label_smoothing"});
}

TEST(ImportTask, AFileOfTrlIsForTheTrainerThatItsNamesOrTheUserSay) {
  MemoryEnv env;
  ExpectLines(kTrl.Run("beta: 0.2\nmax_length: 512\n", env, &Dpo())->yaml,
              {"task: dpo  # --as", "  beta: 0.2  # beta", "max_seq_len: 1024  # max_length",
               "learning_rate: 1.0e-06  # the default of TRL"});
  ExpectLines(kTrl.Run("loss_type: [sigmoid, sft]\nloss_weights: [1.0, 0.5]\n", env)->yaml,
              {"task: dpo  # loss_type", "  rpo_alpha: 0.5  # loss_type"});
  ExpectLines(kTrl.Run("loss_type: simpo\nuse_peft: true\n", env)->yaml,
              {"task: simpo  # loss_type", "  cpo_alpha: 1  # the default of TRL"});
  ExpectLines(kTrl.Run("desirable_weight: 2\nbeta: 0.3\n", env)->yaml,
              {"task: kto  # desirable_weight", "  beta: 0.3  # beta", "  desirable_weight: 2  # desirable_weight",
               "max_seq_len: 1024  # the default of TRL"});
  ExpectLines(kTrl.Run("center_rewards_coefficient: 0.1\n", env)->yaml,
              {"task: reward  # center_rewards_coefficient", "learning_rate: 0.0001  # the default of TRL"});
  // Its trainers of preferences switch dropout off.
  const auto dropout = kTrl.Run("use_peft: true\nlora_dropout: 0.1\n", env, &Orpo());
  EXPECT_EQ(dropout->yaml.find("\n  dropout:"), std::string::npos) << dropout->yaml;
  EXPECT_NE(dropout->yaml.find("switch dropout off"), std::string::npos);
  ExpectLines(kTrl.Run("use_peft: true\nlora_dropout: 0.1\ndisable_dropout: false\n", env, &Orpo())->yaml,
              {"  dropout: 0.1  # lora_dropout"});
  const auto unclear = kTrl.Run("beta: 0.2\n", env);
  ASSERT_FALSE(unclear.ok());
  EXPECT_NE(unclear.status().message().find("say so: --as dpo, kto, orpo, simpo or reward"), std::string::npos)
      << unclear.status().message();
  const auto other = kLlamaFactory.Run("stage: kto\n", env, &Dpo());
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("--as dpo is not what the file says (kto)"), std::string::npos);
}

TEST(ImportTask, CommandsOfTrlsTrainers) {
  MemoryEnv env;
  for (const auto& [command, task] :
       {std::pair{"trl dpo", "task: dpo  # dpo"},
        {"accelerate launch --num_processes 2 trl/scripts/dpo.py", "task: dpo  # trl/scripts/dpo.py"},
        {"python run_kto.py", "task: kto  # run_kto.py"},
        {"python reward_modeling.py", "task: reward  # reward_modeling.py"},
        {"python cpo.py --loss_type simpo", "task: simpo  # cpo.py"}}) {
    const auto run = ImportRun(env, std::string(command) + " --model_name_or_path m --dataset_name d.jsonl", "f.sh",
                               {.tool = ForeignTool::kTrl});
    ASSERT_TRUE(run.ok()) << run.status().message();
    ExpectLines(run->yaml, {task});
  }
}

TEST(ImportTask, LossesThatAreNotTrainedHereAreRefused) {
  MemoryEnv env = WithPairs();
  const std::tuple<const Tool*, std::string, std::string> recipes[] = {
      {&kLlamaFactory, "stage: dpo\npref_loss: kto_pair\n",
       "line 2, pref_loss: kto_pair: this loss is not trained here"},
      {&kAxolotl, "rl: dpo\ndpo_loss_type: [apo_zero]\n", "the loss apo_zero is not trained here"},
      {&kAxolotl, "rl: grpo\n", "line 1, rl: grpo: trains by rewards"},
      {&kTrl, "loss_type: [sigmoid, hinge]\n", "a sum of several losses"},
      {&kTrl, "loss_type: apo_zero_unpaired\ndesirable_weight: 1\n", "of KTO's losses kto alone"},
      {&kTrl, "loss_type: [sigmoid, sft]\nloss_weights: [2, 1]\n", "the loss of pairs has the weight 1 here"}};
  for (const auto& [tool, text, why] : recipes) {
    const auto refused = tool->Run(text, env);
    ASSERT_FALSE(refused.ok()) << text << refused->yaml;
    EXPECT_NE(refused.status().message().find(why), std::string::npos) << refused.status().message();
    EXPECT_NE(refused.status().message().find("--as sft"), std::string::npos);
  }
}

// Each value of names.json differs from the tool's default: the result differs from that without the setting, and names
// it; or it is refused by its name.
TEST(ImportTask, EveryValueOfEverySettingIsTranslatedOrNamed) {
  MemoryEnv env = WithPairs();
  const std::tuple<const Tool*, const char*, std::string, const ObjectiveRule*> recipes[] = {
      {&kLlamaFactory, "LLaMA-Factory", "stage: dpo\n", nullptr},
      {&kLlamaFactory, "LLaMA-Factory", "stage: kto\n", nullptr},
      {&kAxolotl, "Axolotl", "rl: dpo\n", nullptr},
      {&kAxolotl, "Axolotl", "rl: simpo\n", nullptr},
      {&kTrl, "TRL's dpo", "", &Dpo()},
      {&kTrl, "TRL's kto", "", &Kto()},
      {&kTrl, "TRL's orpo", "", &Orpo()},
      {&kTrl, "TRL's simpo", "loss_type: simpo\n", &Simpo()},
      {&kTrl, "TRL's reward", "", &Reward()}};
  for (const auto& [tool, of, recipe, as] : recipes) {
    const auto without = tool->Run(recipe, env, as);
    ASSERT_TRUE(without.ok()) << without.status().message();
    const std::set<std::string> usual = LinesOf(without->yaml);
    int count = 0;
    const Json known = KnownValues(of);
    for (const auto& [key, values] : known.items()) {
      if (recipe.starts_with(key + ":") || key == "train_from_scratch") continue;  // with LoRA
      for (const Json& value : values) {
        const std::string setting = fmt::format("{}: {}", key, value.dump());
        ++count;
        const auto run = tool->Run(setting + "\n" + recipe, env, as);
        if (!run.ok()) {
          EXPECT_TRUE(HasWord(run.status().message(), key)) << of << ", " << setting << "\n" << run.status().message();
          continue;
        }
        bool named = false;
        for (const std::string& line : LinesOf(run->yaml)) {
          named |= !usual.contains(line) && HasWord(line, key) && !HasWord(line, "# the default of");
        }
        EXPECT_TRUE(named) << of << ", " << recipe << setting << "\n" << run->yaml;
      }
    }
    EXPECT_GT(count, 10) << of;
  }
}

// What a file leaves open is as in the tool: the defaults of TRL's classes, where ours differ, are written.
TEST(ImportTask, DefaultsOfTrlsTrainersAreWritten) {
  MemoryEnv env;
  const auto tools = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/foreign_names/names.json");
  ASSERT_TRUE(tools.ok());
  const std::tuple<const char*, std::string, const ObjectiveRule*> recipes[] = {
      {"TRL's dpo", "", &Dpo()},
      {"TRL's kto", "", &Kto()},
      {"TRL's orpo", "", &Orpo()},
      {"TRL's simpo", "loss_type: simpo\n", &Simpo()},
      {"TRL's reward", "", &Reward()}};
  for (const auto& [of, recipe, as] : recipes) {
    const auto open = kTrl.Run(recipe + "use_peft: true\n", env, as);
    ASSERT_TRUE(open.ok()) << open.status().message();
    // The same run as with each default written out.
    for (const auto& [key, value] : (*tools)[of]["defaults"].items()) {
      if (value.is_null() || recipe.starts_with(key + ":")) continue;
      const auto given = kTrl.Run(fmt::format("{}: {}\n", key, value.dump()) + recipe + "use_peft: true\n", env, as);
      ASSERT_TRUE(given.ok()) << of << ", " << key << ": " << given.status().message();
      const auto as_given = ParseRunConfig(given->yaml, "given.yaml"),
                 left_open = ParseRunConfig(open->yaml, "open.yaml");
      ASSERT_TRUE(as_given.ok() && left_open.ok()) << given->yaml;
      EXPECT_TRUE(*as_given == *left_open) << of << ", " << key << "\n" << open->yaml << "\n" << given->yaml;
      EXPECT_EQ(given->lost, open->lost) << of << ", " << key;
    }
  }
}

}  // namespace
}  // namespace temper::import_test::import_task_test
