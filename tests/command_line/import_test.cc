// temper import: configurations of the typical kind, written for these tests, become ours, and temper plan takes them.
#include "temper_program.h"

namespace temper::program::import_test {
namespace {

class Import : public Workplace {
 protected:
  // Imports `file`, plans the result, and returns it.
  std::string Imported(const std::string& file, const Arguments& more = {}) const {
    Arguments arguments = {"import", file, "-o", "run.yaml", "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended imported = Temper(arguments);
    EXPECT_EQ(imported.code, 0) << imported.err;
    const Ended plan = Temper({"plan", "run.yaml", "--device", "cpu"});
    // Most of these recipes name data that is not here.
    EXPECT_TRUE(plan.code == 0 || plan.out.find("\nthe run would be refused because of its data: ") != plan.out.npos)
        << plan.err << plan.out;
    return Slurp("run.yaml");
  }
};

void ExpectLines(const std::string& yaml, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    EXPECT_NE(("\n" + yaml).find("\n" + line + "\n"), std::string::npos) << "'" << line << "' is not in\n" << yaml;
  }
}

TEST_F(Import, AxolotlsQlora) {
  Spill("qlora.yml", "base_model: " + kModel + R"(
tokenizer_type: AutoTokenizer
load_in_8bit: true
adapter: lora
lora_model_dir:
datasets:
  - path: d.jsonl
    ds_type: json
    type: chat_template
    field_messages: messages
  - path: json
    data_files: more.jsonl
    type: alpaca
val_set_size: 0.05
sequence_len: 256
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_target_linear: true
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_32bit
lr_scheduler: cosine
cosine_min_lr_ratio: 0.1
learning_rate: 2e-4
warmup_steps: 10
bf16: auto
gradient_checkpointing: true
flash_attention: true
evals_per_epoch: 4
wandb_project: mine
special_tokens:
  pad_token: "<pad>"
)");
  const std::string yaml = Imported("qlora.yml");
  ExpectLines(
      yaml, {"# From qlora.yml (Axolotl), by temper import.", "data: [d.jsonl, more.jsonl]  # datasets",
             "base_dtype: int8  # load_in_8bit", "max_seq_len: 256  # sequence_len", "  r: 32  # lora_r",
             "  target_modules: all-linear  # lora_target_linear", "per_device_train_batch_size: 2  # micro_batch_size",
             "gradient_accumulation_steps: 1  # the default of Axolotl",
             "lr_scheduler_type: cosine_with_min_lr  # lr_scheduler", "  min_lr_rate: 0.1  # cosine_min_lr_ratio",
             "warmup_steps: 10", "learning_rate: 0.0002", "  recompute: block  # gradient_checkpointing",
             "#   line 31, wandb_project: mine: only metrics.jsonl and TensorBoard are written",
             "#   line 29, flash_attention: true: attention is always fused and isolates documents"});
  EXPECT_NE(yaml.find("line 22, optimizer: paged_adamw_32bit: adamw, whose states are f32"), std::string::npos) << yaml;
  const std::string text = Slurp("qlora.yml");
  const auto with = [&](const std::string& optimizer) {
    std::string changed = text;
    Spill("qlora.yml", changed.replace(changed.find("paged_adamw_32bit"), 17, optimizer));
    return Imported("qlora.yml");
  };
  EXPECT_NE(with("paged_adamw_8bit").find("adamw_8bit, whose states are bitsandbytes' 8 bits"), std::string::npos);
  ExpectLines(with("adamw_bnb_8bit"), {"optimizer: adamw_8bit"});
  ExpectLines(with("adamw_8bit"), {"optimizer: adamw_8bit"});
}

TEST_F(Import, LlamaFactorysLoraWithItsDatasetInfo) {
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("data")).ok());
  Spill("data/dataset_info.json", R"({
    "pirates": {"file_name": "../d.jsonl", "formatting": "openai"},
    "chats": {"file_name": "chats.json", "formatting": "sharegpt", "columns": {"messages": "turns"}}})");
  Spill("lora_sft.yaml", "model_name_or_path: " + kModel + R"(
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: q_proj,v_proj
dataset: pirates,chats
cutoff_len: 256
overwrite_cache: true
output_dir: saves/lora
save_steps: 0.5
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_steps: 0.1
bf16: true
quantization_bit: 3
max_samples: 100
template: llama3
pissa_init: true
resume_from_checkpoint: null
)");
  const std::string yaml = Imported("lora_sft.yaml");
  ExpectLines(yaml, {"save_steps: 0.5", "# From lora_sft.yaml (LLaMA-Factory), by temper import.",
                     "  alpha: 16  # the default of LLaMA-Factory", "  target_modules: [q_proj, v_proj]  # lora_target",
                     "per_device_train_batch_size: 8  # the default of LLaMA-Factory",
                     "warmup_ratio: 0.1  # warmup_steps", "learning_rate: 0.0001", "chat_template: llama3  # template",
                     "output_dir: saves/lora", "  init_lora_weights: pissa  # pissa_init",
                     "#   line 9, overwrite_cache: true: data is read and tokenized by all threads, once"});
  EXPECT_NE(yaml.find("data: [{path: data/../d.jsonl, max_samples: 100}, {path: data/chats.json, max_samples: "
                      "100, columns: {conversations: turns}}]"),
            std::string::npos)
      << yaml;
  EXPECT_NE(yaml.find("line 17, quantization_bit: 3: 8 is base_dtype: int8, 4 is"), std::string::npos) << yaml;
  ExpectLines(yaml, {"packing: false  # the default of LLaMA-Factory"});
}

TEST_F(Import, TrlsYamlAndItsCommandSayTheSame) {
  Spill("sft.yaml", "model_name_or_path: " + kModel + R"(
dataset_name: org/chats
use_peft: true
lora_target_modules: [q_proj, v_proj]
max_length: 256
packing: true
completion_only_loss: false
learning_rate: 2.0e-4
lr_scheduler_type: constant
warmup_ratio: 0.1
)");
  Spill("sft.sh", "#!/bin/sh\naccelerate launch --num_processes 1 sft.py \\\n  --model_name_or_path '" + kModel +
                      "' --dataset_name=org/chats --use_peft \\\n  --lora_target_modules q_proj v_proj "
                      "--max_length 256 --packing --completion_only_loss false --learning_rate 2.0e-4 "
                      "--lr_scheduler_type constant --warmup_ratio 0.1\n");
  const auto settings = [](const std::string& yaml) { return yaml.substr(yaml.find("\n# Model")); };
  const std::string yaml = settings(Imported("sft.yaml"));
  ExpectLines(yaml, {"method: lora  # use_peft", "  dropout: 0.05  # the default of TRL",
                     "train_on_prompt: true  # completion_only_loss", "lr_scheduler_type: constant",
                     "per_device_train_batch_size: 8  # the default of TRL"});
  EXPECT_EQ(yaml.find("warmup"), std::string::npos) << yaml;
  EXPECT_EQ(settings(Imported("sft.sh")), yaml);
}

TEST_F(Import, QuantisedBasesTemplatesAndSeveralFilesHaveOptions) {
  Spill("mine.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  Spill("qlora.yml", "base_model: " + kModel + R"(
adapter: qlora
load_in_4bit: true
bnb_4bit_use_double_quant: false
datasets:
  - path: d.jsonl
    split: train[:1000]
  - path: d2.jsonl
  - path: d2.jsonl
dataset_prepared_path: prepared
chat_template: jinja
chat_template_jinja: mine.jinja
val_set_size: 0.1
sequence_len: 64
micro_batch_size: 1
learning_rate: 1e-4
neftune_noise_alpha: 5
label_smoothing_factor: 0.1
early_stopping_patience: 3
interleave_probs: 0.7,0.3
)");
  const std::string yaml = Imported("qlora.yml");
  ExpectLines(yaml,
              {"base_dtype: nf4  # load_in_4bit", "data_cache: prepared  # dataset_prepared_path",
               "chat_template: mine.jinja  # chat_template_jinja", "neftune_noise_alpha: 5",
               "label_smoothing_factor: 0.1", "early_stopping_patience: 3",
               "#   line 4, bnb_4bit_use_double_quant: false: base_dtype: nf4, whose scales are always quantised, too",
               "data: [{path: d.jsonl, max_samples: 1000}, {path: d2.jsonl, passes: 2}]  # datasets"});
  EXPECT_NE(yaml.find("each file of data has its own passes"), std::string::npos) << yaml;
}

TEST_F(Import, FullTrainingDropsTheSettingsOfLora) {
  Spill("full.yaml", "model_name_or_path: " + kModel +
                         "\nfinetuning_type: full\nlora_rank: 8\ncutoff_len: 64\ndeepspeed: z3.json\nseed: 7\n");
  const std::string yaml = Imported("full.yaml");
  EXPECT_EQ(yaml.find("lora:"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("#   lora.r (lora_rank): method is full, without LoRA"), std::string::npos) << yaml;
  ExpectLines(yaml, {"seed: 7", "method: full  # finetuning_type"});
}

// As in transformers: no steps leave the ratio, and a whole float is a number.
TEST_F(Import, WarmupCountsAsTransformersCountsIt) {
  const auto imported = [&](const std::string& warmup) {
    Spill("sft.yaml", "model_name_or_path: " + kModel + "\ndataset_name: d.jsonl\nmax_length: 128\n" + warmup);
    return Imported("sft.yaml");
  };
  const std::string ratio = imported("warmup_steps: 0\nwarmup_ratio: 0.2\n");
  ExpectLines(ratio, {"warmup_ratio: 0.2"});
  EXPECT_EQ(ratio.find("\nwarmup_steps"), std::string::npos) << ratio;
  ExpectLines(imported("warmup_steps: 10.0\n"), {"warmup_steps: 10"});
}

TEST_F(Import, MistakesNameTheRemedy) {
  Spill("unclear.yaml", "learning_rate: 1e-4\n");
  ExpectEnd(Temper({"import", "unclear.yaml"}), 2, {"add --from llama-factory, axolotl or trl"});
  EXPECT_EQ(Temper({"import", "unclear.yaml", "--from", "trl"}).code, 2) << "it names no model";
  ExpectEnd(Temper({"import", "unclear.yaml", "--from", "unsloth"}), 2, {"from should be one of", "trl", "'unsloth'"});
  ExpectEnd(Temper({"import", "unclear.yaml", "-o", "./unclear.yaml"}), 2, {"is the file to import"});
  ExpectEnd(Temper({"import"}), 2, {"temper import FILE"});
  Spill("words.txt", "no settings here\n");
  ExpectEnd(Temper({"import", "words.txt"}), 2, {"neither lines of 'key: value' nor a command"});
  Spill("variable.sh", "python sft.py --model_name_or_path $MODEL --max_length 5\n");
  ExpectEnd(Temper({"import", "variable.sh"}), 2, {"line 1", "shell variable '$MODEL'"});
  // A typing error of the other tool's name is not dropped without a word.
  Spill("typo.yaml", "base_model: " + kModel + "\nsequence_len: 64\nmicro_batch_size: 1\nlearnin_rate: 1\n");
  ExpectEnd(Temper({"import", "typo.yaml", "-o", "run.yaml"}), 0,
            {"line 4, learnin_rate: 1: this name is not known; did you mean 'learning_rate'?"});
}

TEST_F(Import, ARecipeForPreferencesBecomesARunThatTrains) {
  std::string pairs;
  for (int i = 0; i < 8; ++i) {
    pairs += fmt::format(R"({{"instruction": "Say {}.", "chosen": "It is {}.", "rejected": "No."}})", i, i) + "\n";
  }
  Spill("pairs.jsonl", pairs);
  Spill("dataset_info.json", R"({"pairs": {"file_name": "pairs.jsonl", "ranking": true,
        "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"}}})");
  Spill("dpo.yaml",
        "model_name_or_path: " + kModel +
            "\nstage: dpo\nfinetuning_type: lora\npref_beta: 0.2\npref_loss: ipo\ndataset: pairs\ndataset_dir: .\n"
            "cutoff_len: 64\ntemplate: chatml\nmax_steps: 1\noutput_dir: out\n");
  const std::string yaml = Imported("dpo.yaml", {});
  ExpectLines(yaml, {"task: dpo  # stage", "  beta: 0.2  # pref_beta", "  loss_type: ipo  # pref_loss",
                     "max_seq_len: 128  # cutoff_len"});
  Spill("run.yaml", yaml);
  const Ended ended = Temper({"train", "run.yaml", "--dtype", "f32"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("8 rows of pairs (chosen/rejected)"), std::string::npos) << ended.err;
}

// Of a folder with a file to train on and one to evaluate on.
TEST_F(Import, ALaunchLineBecomesARunThatEvaluatesOnTheOtherSplit) {
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("pref")).ok());
  for (const auto& [file, rows] : {std::pair("pref/train.jsonl", 6), {"pref/test.jsonl", 2}}) {
    std::string text;
    for (int i = 0; i < rows; ++i) {
      text += fmt::format(R"({{"prompt": "Say {}.", "chosen": " It is {}.", "rejected": " No."}})", i, i) + "\n";
    }
    Spill(file, text);
  }
  Spill("dpo.yaml", "model_name_or_path: " + kModel +
                        "\ndataset_name: pref\nmax_length: 64\neval_strategy: steps\neval_steps: 1\noutput_dir: out\n");
  Spill("dpo.sh",
        "STEPS=1\naccelerate launch --num_processes 4 trl/scripts/dpo.py --config dpo.yaml --max_steps $STEPS\n");
  const std::string yaml = Imported("dpo.sh");
  ExpectLines(yaml, {"task: dpo  # trl/scripts/dpo.py", "data: pref/train.jsonl  # dataset_name",
                     "eval_data: pref/test.jsonl  # dataset_name", "max_steps: 1"});
  Spill("run.yaml", yaml);
  const Ended ended = Temper({"train", "run.yaml", "--dtype", "f32"});
  ExpectEnd(ended, 0, {"6 rows of pairs"});
}

TEST_F(Import, AValueThatCannotBeReadIsAnErrorOfTheConfiguration) {
  Spill("qlora.yml", "base_model: " + kModel + "\nsequence_len: 64\nmicro_batch_size: 1\nlearning_rate: 0,0002\n");
  ExpectEnd(Temper({"import", "qlora.yml", "-o", "run.yaml"}), 2,
            {"qlora.yml line 4, learning_rate: 0,0002: learning_rate should be a number"});
  EXPECT_FALSE(PosixEnv().IsFile(Path("run.yaml")));
}

TEST_F(Import, ARecipeForWhatIsNotTrainedBecomesARunOnlyIfToldSo) {
  Spill("ppo.yaml", "model_name_or_path: " + kModel +
                        "\nstage: ppo\nfinetuning_type: lora\nreward_model: r\ndataset: d.jsonl\ncutoff_len: 64\n");
  ExpectEnd(Temper({"import", "ppo.yaml", "-o", "sft.yaml"}), 2,
            {"ppo.yaml line 2, stage: ppo: trains by rewards", "--as sft"});
  EXPECT_FALSE(PosixEnv().IsFile(Path("sft.yaml")));
  const std::string yaml = Imported("ppo.yaml", {"--as", "sft"});
  ExpectLines(yaml,
              {"#   line 2, stage: ppo: trains by rewards",
               "#   line 4, reward_model: r: this belongs to a recipe for preferences, rewards or generation while "
               "training, and the file has none that is translated"});
}

// A recipe with names of speakers, a join, a style and a way with long rows of its tool: all four train, by import
// alone.
TEST_F(Import, WhatTheToolMakesOfRowsComesAlong) {
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("data")).ok());
  Spill("talk.jsonl", R"({"chat": [{"who": "customer", "said": "Hi"}, {"who": "agent", "said": "Yo"}]})"
                      "\n");
  Spill("alpaca.json", R"([{"instruction": "Add.", "input": "1 2", "output": "3"}])");
  Spill("own.jsonl", R"({"q": "Who?", "a": "I."})"
                     "\n");
  Spill("data/dataset_info.json", R"({"talk": {"file_name": "../talk.jsonl", "formatting": "sharegpt",
      "columns": {"messages": "chat"}, "tags": {"role_tag": "who", "content_tag": "said", "user_tag": "customer",
      "assistant_tag": "agent"}}, "add": {"file_name": "../alpaca.json"}})");
  const std::string of_all = "max_steps: 1\noutput_dir: out\n";
  Spill("factory.yaml",
        "model_name_or_path: " + kModel + "\nstage: sft\ndataset: talk,add\ntemplate: zephyr\n" + of_all);
  ExpectLines(Imported("factory.yaml"),
              {"prompt_separator: \"\\n\"  # dataset", "long_rows: proportional  # as LLaMA-Factory cuts rows"});
  ExpectEnd(Temper({"data", "preview", "run.yaml"}), 0, {});
  ExpectEnd(Temper({"train", "run.yaml"}), 0, {"done        1 step"});
  const std::string axolotl = "base_model: " + kModel + "\nadapter: lora\nsequence_len: 256\n" + of_all;
  Spill("own.yml", axolotl +
                       "datasets:\n- path: own.jsonl\n  type: {field_instruction: q, field_output: a, format: "
                       "'Q: {instruction} A: ', no_input_format: 'Q: {instruction} A: '}\n");
  Imported("own.yml");
  const Ended shown = Temper({"data", "preview", "run.yaml"});
  ExpectEnd(shown, 0, {"1 row of fields of the row template"});
  EXPECT_NE(shown.out.find("Q: Who? A: [[I."), shown.out.npos) << shown.out;
  ExpectEnd(Temper({"train", "run.yaml", "--overwrite"}), 0, {"done        1 step"});
}

TEST_F(Import, AFileIsReplacedOnlyIfToldSo) {
  Spill("sft.yaml", "model_name_or_path: " + kModel + "\ndataset_name: d.jsonl\nmax_length: 128\n");
  Spill("mine.yaml", "seed: 7\n");
  ExpectEnd(Temper({"import", "sft.yaml", "-o", "mine.yaml"}), 2, {"mine.yaml exists", "--overwrite"});
  EXPECT_EQ(Slurp("mine.yaml"), "seed: 7\n");
  EXPECT_EQ(Temper({"import", "sft.yaml", "-o", "mine.yaml", "--overwrite"}).code, 0);
  ExpectLines(Slurp("mine.yaml"), {"max_seq_len: 128  # max_length"});
}

TEST_F(Import, TrainWithAForeignFileLeadsToIt) {
  Spill("axolotl.yml", "base_model: m\nsequence_len: 64\nmicro_batch_size: 1\nwandb_project: x\n");
  ExpectEnd(Temper({"train", "axolotl.yml"}), 2,
            {"line 4: unknown key 'wandb_project'; only metrics.jsonl and TensorBoard are written; remove it",
             "temper import turns a file of LLaMA-Factory, Axolotl or TRL into one for Temper"});
}

}  // namespace
}  // namespace temper::program::import_test
