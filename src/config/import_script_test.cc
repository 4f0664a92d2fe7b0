// Shell scripts: which command starts the training, what its variables are, which file it names.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "config/import_for_test.h"
#include "config/shell_script.h"

namespace temper::import_test::import_script_test {
namespace {

Result<ImportedRun> ImportedFrom(MemoryEnv& env, const std::string& script, const std::string& file = "f.sh") {
  return ImportRun(env, script, file, {});
}

const std::string kOptions = " --model_name_or_path m --dataset_name d.jsonl --output_dir out --use_peft";

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

// As bash prints them: printf '<%s>' of each command's words.
TEST(ShellScript, WordsAreThoseOfAShell) {
  const auto words = [](const std::string& script) {
    const auto commands = ReadShellScript(script, "f.sh");
    EXPECT_TRUE(commands.ok()) << commands.status().message();
    std::string text;
    for (const ScriptCommand& command : *commands) {
      for (const ScriptWord& word : command.words) text += "<" + word.text + ">";
      text += "\n";
    }
    return text;
  };
  EXPECT_EQ(words("a 'b c' \"d  e\" f\\ g # h\ni"), "<a><b c><d  e><f g>\n<i>\n");
  EXPECT_EQ(words("X=1 Y='2 3'\na $X \"$Y\" ${X}z $Y"), "<a><1><2 3><1z><2><3>\n");
  EXPECT_EQ(words("export M=m; a ${M}/x ${N:-n o} '$M'"), "<a><m/x><n><o><$M>\n");
  EXPECT_EQ(words("ARGS=(\n  --a 1  # one\n  --b '2 3'\n)\na \"${ARGS[@]}\" \"$@\""), "<a><--a><1><--b><2 3>\n");
  EXPECT_EQ(words("a --x y > log.txt 2>&1 && b | tee c"), "<a><--x><y>\n<b>\n<tee><c>\n");
  EXPECT_EQ(words("if true; then\n  a \\\n    b\nfi"), "<true>\n<a><b>\n<fi>\n");
  EXPECT_FALSE(ReadShellScript("a 'b", "f.sh").ok());
  const auto open = ReadShellScript("a $(hostname) $UNKNOWN b", "f.sh");
  ASSERT_EQ(open->at(0).words.size(), 4u);
  EXPECT_TRUE(open->at(0).words[1].is_open && open->at(0).words[2].is_open && !open->at(0).words[3].is_open);
}

TEST(ImportScript, TheProgramAloneSaysWhatTheScriptTrains) {
  MemoryEnv env;
  for (const char* before : {"OUT=runs/my_dpo\npython trl/scripts/sft.py", "export WANDB_PROJECT=kto\npython train.py",
                             "cd recipes/dpo\npython sft.py", "mkdir -p runs/kto\ntrl sft",
                             "echo grpo ppo\npython sft.py", "accelerate launch --config_file dpo.yaml sft.py"}) {
    const auto run = ImportedFrom(env, before + kOptions);
    ASSERT_TRUE(run.ok()) << before << run.status().message();
    EXPECT_FALSE(Has(run->yaml, "\ntask:")) << before << run->yaml;
  }
  EXPECT_TRUE(
      Has(ImportedFrom(env, "OUT=sft\npython recipes/sft/run_dpo.py" + kOptions)->yaml, "\ntask: dpo  # recipes"));
  EXPECT_TRUE(Has(ImportedFrom(env, "accelerate launch -m trl.scripts.kto" + kOptions)->yaml,
                  "\ntask: kto  # trl.scripts.kto"));
}

TEST(ImportScript, ARecipeOfAToolThatIsNotKnownHereIsRefused) {
  MemoryEnv env;
  for (const auto& [script, tool] : {std::pair{"CUDA_VISIBLE_DEVICES=0 swift sft --model m --lora_rank 8", "ms-swift"},
                                     {"swift rlhf --rlhf_type dpo --model m", "ms-swift"},
                                     {"tune run lora_finetune_single_device --config llama3/8B_lora", "torchtune"},
                                     {"model: m\ntrain_type: lora\ndataset: d\n", "ms-swift"},
                                     {"model:\n  _component_: torchtune.models.llama3\nlora_rank: 8\n", "torchtune"}}) {
    const auto refused = ImportedFrom(env, script);
    ASSERT_FALSE(refused.ok()) << script << refused->yaml;
    EXPECT_TRUE(Has(refused.status().message(), fmt::format("this is {}'s", tool))) << refused.status().message();
  }
  const auto own = ImportedFrom(env, "model: m\ndata: d.jsonl\nlora: {r: 8}\n", "run.yaml");
  ASSERT_FALSE(own.ok());
  EXPECT_TRUE(Has(own.status().message(), "Temper's own settings: temper train run.yaml")) << own.status().message();
}

TEST(ImportScript, TheFileThatALaunchLineNamesIsReadAndItsOptionsWin) {
  MemoryEnv env;
  env.files["lf.yaml"] = "model_name_or_path: m\nstage: sft\ndataset: d\nlearning_rate: 1e-3\noutput_dir: a\n";
  env.files["ax.yml"] = "base_model: m\ndatasets: [{path: d.jsonl}]\nlearning_rate: 1e-3\noutput_dir: a\n";
  env.files["trl.yaml"] = "model_name_or_path: m\ndataset_name: d.jsonl\nlearning_rate: 1e-3\noutput_dir: a\n";
  for (const auto& [script, tool] :
       {std::tuple{"llamafactory-cli train lf.yaml learning_rate=1e-4", ForeignTool::kLlamaFactory},
        {"FORCE_TORCHRUN=1 llamafactory-cli train lf.yaml learning_rate=1e-4", ForeignTool::kLlamaFactory},
        {"axolotl train ax.yml --learning-rate 1e-4", ForeignTool::kAxolotl},
        {"accelerate launch -m axolotl.cli.train ax.yml --learning_rate=1e-4", ForeignTool::kAxolotl},
        {"trl sft --config trl.yaml --learning_rate 1e-4", ForeignTool::kTrl},
        {"accelerate launch --num_processes 2 trl/scripts/sft.py --config trl.yaml --learning_rate 1e-4",
         ForeignTool::kTrl}}) {
    const auto run = ImportedFrom(env, script);
    ASSERT_TRUE(run.ok()) << script << ": " << run.status().message();
    EXPECT_EQ(run->tool, tool) << script;
    EXPECT_TRUE(Has(run->yaml, "\nmodel: m  #")) << run->yaml;
    EXPECT_TRUE(Has(run->yaml, "\nlearning_rate: 0.0001")) << run->yaml;
    EXPECT_TRUE(Has(run->yaml, "\noutput_dir: a")) << run->yaml;
  }
  env.files["recipes/near.yaml"] = env.files["lf.yaml"] + "module_dropout: 0.5\n";
  const auto below = ImportedFrom(env, "llamafactory-cli train near.yaml", "recipes/f.sh");
  EXPECT_TRUE(Has(below->yaml, "recipes/near.yaml line 6, module_dropout: 0.5: ")) << below->yaml;
  const auto missing = ImportedFrom(env, "\ntrl dpo --config none.yaml");
  ASSERT_FALSE(missing.ok());
  EXPECT_TRUE(Has(missing.status().message(), "f.sh line 2: its recipe 'none.yaml' was not found"));
}

TEST(ImportScript, VariablesThatTheScriptSetsAreKnown) {
  MemoryEnv env;
  const auto run =
      ImportedFrom(env,
                   "MODEL=org/m\nRUN=$MODEL-tuned\ntrl sft --model_name_or_path $MODEL --dataset_name d.jsonl "
                   "--output_dir \"${RUN}\" --learning_rate ${LR:-1e-4}");
  ASSERT_TRUE(run.ok()) << run.status().message();
  for (const char* line : {"\nmodel: org/m  #", "\noutput_dir: org/m-tuned\n", "\nlearning_rate: 0.0001\n"}) {
    EXPECT_TRUE(Has(run->yaml, line)) << line << run->yaml;
  }
  for (const char* value : {"$1", "$HOME/m", "$(ls)"}) {
    const auto open = ImportedFrom(env, fmt::format("trl sft --model_name_or_path {} --dataset_name d", value));
    ASSERT_FALSE(open.ok()) << open->yaml;
    EXPECT_TRUE(Has(open.status().message(), "line 1: --model_name_or_path has the shell variable"))
        << open.status().message();
  }
  const auto two = ImportedFrom(env, "trl sft" + kOptions + "\ntrl dpo" + kOptions);
  ASSERT_FALSE(two.ok());
  EXPECT_TRUE(Has(two.status().message(), "starts two runs, in lines 1 and 2")) << two.status().message();
}

TEST(ImportScript, AFileThatTrainsNothingIsRefusedWithOurCommand) {
  MemoryEnv env;
  const std::string model = "model_name_or_path: m\nadapter_name_or_path: saves/sft\ntemplate: llama3\n";
  env.files["ax.yml"] = "base_model: m\ndatasets: [d.jsonl]\noutput_dir: out/ax\n";
  for (const auto& [text, command] :
       {std::pair{model + "export_dir: models/merged\n", "temper export saves/sft --output_dir models/merged"},
        {model + "infer_backend: huggingface\n", "temper chat saves/sft"},
        {model + "task: mmlu_test\n", "temper eval saves/sft --data FILE"},
        {model + "do_predict: true\neval_dataset: d\n", "temper generate saves/sft --prompts FILE"},
        {"axolotl merge-lora ax.yml", "temper export out/ax --output_dir models/merged"},
        {"axolotl inference ax.yml", "temper chat out/ax"},
        {"llamafactory-cli webui", "temper --help"}}) {
    const auto refused = ImportedFrom(env, text);
    ASSERT_FALSE(refused.ok()) << text << refused->yaml;
    EXPECT_TRUE(Has(refused.status().message(), command)) << refused.status().message();
    EXPECT_TRUE(Has(refused.status().message(), "starts no training")) << refused.status().message();
  }
}

}  // namespace
}  // namespace temper::import_test::import_script_test
