#include "config/import.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "base/project_folder_for_test.h"
#include "config/import_for_test.h"
#include "format/json.h"
#include "format/memory_env_for_test.h"

namespace temper::import_test {
namespace {

// Settings with which nothing could be trained.
const std::set<std::string> kErrors = {
    "train_from_scratch: true",         // with LoRA
    "learning_rate: \"abc\"",           // a number
    "resume_from_checkpoint: \"abc\"",  // there is none
};

// Each value of names.json differs from the tool's default. The result differs from that without the setting, and names
// it in a line of its own.
TEST(Import, EveryValueOfEverySettingOfEachToolIsTranslatedOrNamed) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  for (const Tool* tool : {&kLlamaFactory, &kAxolotl, &kTrl}) {
    int count = 0;
    const auto without = tool->Run("", env);
    ASSERT_TRUE(without.ok()) << without.status().message();
    const std::set<std::string> usual = LinesOf(without->yaml);
    const Json known = KnownValues(tool->name);
    for (const auto& [key, values] : known.items()) {
      for (const Json& value : values) {
        const std::string setting = fmt::format("{}: {}", key, value.dump());
        ++count;
        const auto run = tool->Run(setting + "\n", env, &Sft());
        if (!run.ok()) {
          EXPECT_TRUE(kErrors.contains(setting)) << tool->name << ", " << setting << "\n" << run.status().message();
          EXPECT_TRUE(HasWord(run.status().message(), key)) << setting << "\n" << run.status().message();
          continue;
        }
        bool named = false;
        for (const std::string& line : LinesOf(run->yaml)) {
          named |= !usual.contains(line) && HasWord(line, key) && !HasWord(line, "# the default of");
        }
        EXPECT_TRUE(named) << tool->name << ", " << setting << "\n" << run->yaml;
      }
    }
    EXPECT_GT(count, 200) << tool->name;
  }
}

bool SetsColumn(const std::string& yaml, const Json& column) {
  if (!column.is_string()) return false;
  const size_t at = std::min(yaml.find("columns: {"), yaml.find("roles: {"));
  return at != yaml.npos && HasWord(yaml.substr(at, yaml.find('}', at) - at), column.get<std::string>());
}

TEST(Import, EveryKeyOfLlamaFactorysDataSetsIsTranslatedOrNamed) {
  const Json known = KnownValues("LLaMA-Factory's dataset_info.json");
  ASSERT_GT(known.size(), 25u);
  for (const auto& [key, values] : known.items()) {
    if (key == "load_from" || key == "dataset_name" || key == "formatting") continue;  // no keys; how rows are read
    const bool tag = key.ends_with("_tag") && key != "kto_tag";
    const bool outside =
        key == "ranking" || key == "subset" || key == "split" || key == "folder" || key == "num_samples";
    const bool alpaca = key == "prompt" || key == "query" || key == "response" || key == "history";
    for (const Json& value : values) {
      Json entry = {{"file_name", "d.json"}, {"formatting", alpaca ? "alpaca" : "sharegpt"}};
      (outside ? entry : entry[tag ? "tags" : "columns"])[key] = value;
      MemoryEnv env = WithDatasetInfo(entry);
      const std::string yaml = kLlamaFactory.With("cutoff_len", "64", env);
      const bool named = HasWord(yaml, key == "num_samples" && value != 0 ? "max_samples" : key);
      EXPECT_TRUE(named || SetsColumn(yaml, value)) << entry << "\n" << yaml;
    }
  }
}

TEST(Import, OfTwoLimitsOfADataSetTheSmallerCounts) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}, {"num_samples", 1000}});
  for (const auto& [limit, counts] : {std::pair{"100", "max_samples: 100"}, {"5000", "max_samples: 1000"}}) {
    const std::string yaml = kLlamaFactory.With("max_samples", limit, env);
    EXPECT_NE(yaml.find(counts), yaml.npos) << yaml;
    EXPECT_NE(yaml.find("the first rows, not random ones"), yaml.npos) << yaml;
    EXPECT_EQ(yaml.find("num_samples '"), yaml.npos) << yaml;
  }
}

TEST(Import, ColumnsThatRowsOfOtherFormatsDoNotReadAreNamed) {
  for (const Json& columns : {Json{{"prompt", "question"}, {"response", "answer"}, {"query", "input"}},
                              Json{{"prompt", "text"}, {"query", "input"}}}) {
    MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}, {"columns", columns}});
    const std::string yaml = kLlamaFactory.With("cutoff_len", "64", env);
    EXPECT_TRUE(HasWord(yaml, "query")) << yaml;
    EXPECT_FALSE(HasWord(yaml, "response")) << yaml;
  }
}

TEST(Import, EveryKeyOfAxolotlsDataSetsIsTranslatedOrNamed) {
  MemoryEnv env;
  const Json known = KnownValues("Axolotl's datasets");
  ASSERT_GT(known.size(), 25u);
  for (const auto& [key, values] : known.items()) {
    for (const Json& value : values) {
      if (value == "turn") continue;  // what counts where the key is left out
      Json entry = {{"path", "d.jsonl"}};
      entry[key] = value;
      const std::string yaml = kAxolotl.With("datasets", Json::array({entry}).dump(), env);
      const bool file = key == "path" || key == "data_files";
      EXPECT_TRUE(HasWord(yaml, file || key == "type" ? "abc" : key) || SetsColumn(yaml, value)) << entry << "\n"
                                                                                                 << yaml;
    }
  }
}

TEST(Import, WhatAFileLeavesAtTheDefaultIsNotListed) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}, {"split", "train"}});
  for (const char* line : {"streaming", "pissa_init", "shift_attn"}) {
    EXPECT_FALSE(HasWord(kLlamaFactory.With(line, "false", env), line)) << line;
  }
  for (const char* line : {"eval_delay", "pref_ftx", "dataloader_num_workers"}) {
    EXPECT_FALSE(HasWord(kLlamaFactory.With(line, "0", env), line)) << line;
    EXPECT_FALSE(HasWord(kLlamaFactory.With(line, "0.0", env), line)) << line;
  }
  EXPECT_FALSE(HasWord(kLlamaFactory.With("galore_rank", "16", env), "galore_rank"));
  EXPECT_TRUE(HasWord(kLlamaFactory.With("galore_rank", "0", env), "galore_rank"));
  EXPECT_FALSE(HasWord(kLlamaFactory.With("enable_thinking", "true", env), "enable_thinking"));
  EXPECT_FALSE(HasWord(kLlamaFactory.With("dataset", "demo", env), "split"));
}

TEST(Import, ThinkingIsAVariableOfTheChatTemplate) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  const std::string yaml = kLlamaFactory.With("enable_thinking", "false\npreserve_thinking: true", env);
  EXPECT_NE(yaml.find(R"(chat_template_kwargs: {"enable_thinking":false,"preserve_thinking":true})"), yaml.npos)
      << yaml;
}

// As PyYAML reads the files of all three.
TEST(Import, ModulesInFullAndRatesOfBAreTranslated) {
  MemoryEnv env;
  const auto has = [](const std::string& yaml, const std::string& line) {
    EXPECT_NE(yaml.find("\n" + line + "  #"), std::string::npos) << line << " is not in\n" << yaml;
  };
  has(kLlamaFactory.With("additional_target", "embed_tokens, model.norm", env),
      "train_modules: [embed_tokens, model.norm]");
  has(kLlamaFactory.With("loraplus_lr_ratio", "16.0", env), "lora_plus_ratio: 16");
  has(kAxolotl.With("adapter: lora\nlora_modules_to_save", "[embed_tokens, lm_head]", env),
      "train_modules: [embed_tokens, lm_head]");
  has(kAxolotl.With("adapter: lora\npeft_ensure_weight_tying: true\nlora_modules_to_save", "[embed_tokens]", env),
      "  ensure_weight_tying: true");
  has(kTrl.With("use_peft: true\nlora_modules_to_save", "[lm_head]", env), "train_modules: [lm_head]");
}

TEST(Import, Yaml11sYesAndNoAreBooleans) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  for (const char* yes : {"yes", "Yes", "on", "ON", "true"}) {
    EXPECT_NE(kLlamaFactory.With("bf16", yes, env).find("\ndtype: bf16  # bf16\n"), std::string::npos) << yes;
    EXPECT_NE(kLlamaFactory.With("packing", yes, env).find("\npacking: true\n"), std::string::npos) << yes;
  }
  const std::string no = kAxolotl.With("train_on_inputs", "no", env);
  EXPECT_NE(no.find("\ntrain_on_prompt: false  # train_on_inputs\n"), std::string::npos) << no;
  EXPECT_NE(kTrl.With("save_strategy", "no", env).find("\nsave_strategy: no\n"), std::string::npos);
  EXPECT_NE(kTrl.With("max_length", "2_048", env).find("\nmax_seq_len: 2048  # max_length\n"), std::string::npos);
  const std::string quoted = kLlamaFactory.With("packing", "'yes'", env);
  EXPECT_NE(quoted.find("packing should be true or false"), std::string::npos) << quoted;
  const auto command = ImportRun(env, "python sft.py --model_name_or_path m --dataset_name d.jsonl --bf16 yes", "f.sh",
                                 {.tool = ForeignTool::kTrl});
  ASSERT_TRUE(command.ok()) << command.status().message();
  EXPECT_NE(command->yaml.find("\ndtype: bf16  # bf16\n"), std::string::npos) << command->yaml;
}

// As in transformers: a part of the run below 1, and evaluation with the rows of the log where its steps are not given.
TEST(Import, WhenToEvaluateAndSaveIsTranslated) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  const std::string parts = kLlamaFactory.With(
      "save_steps", "0.25\nval_size: 0.1\neval_strategy: steps\neval_steps: 0.125\nlogging_steps: 0.01", env);
  for (const char* line :
       {"\nsave_steps: 0.25\n", "\neval_strategy: steps\n", "\neval_steps: 0.125\n", "\nlogging_steps: 0.01\n"}) {
    EXPECT_NE(parts.find(line), parts.npos) << line << parts;
  }
  const std::string epochs =
      kLlamaFactory.With("save_strategy", "epoch\nval_size: 0.1\nevaluation_strategy: epoch", env);
  EXPECT_NE(epochs.find("\nsave_strategy: epoch\n"), epochs.npos) << epochs;
  EXPECT_NE(epochs.find("\neval_strategy: epoch  # evaluation_strategy\n"), epochs.npos) << epochs;
  const std::string logged = kLlamaFactory.With("eval_strategy", "steps\nval_size: 0.1\nlogging_steps: 20", env);
  EXPECT_NE(logged.find("\neval_steps: 20  # the default of LLaMA-Factory\n"), logged.npos) << logged;
  const std::string best = kLlamaFactory.With("save_strategy", "best", env);
  EXPECT_NE(best.find("save_strategy: best: steps, epoch or no"), best.npos) << best;
  // 1 / (4 * 2), as Axolotl computes it.
  const std::string times = kAxolotl.With("saves_per_epoch", "4\nnum_epochs: 2", env);
  EXPECT_NE(times.find("\nsave_steps: 0.125  # saves_per_epoch\n"), times.npos) << times;
  const std::string once = kAxolotl.With("saves_per_epoch", "1", env);
  EXPECT_NE(once.find("saves_per_epoch: 1: at most once in the run"), once.npos) << once;
}

TEST(Import, LlamaFactorysColumnsAndTagsAreTranslatedOrNamed) {
  MemoryEnv env =
      WithDatasetInfo({{"file_name", "d.json"},
                       {"formatting", "sharegpt"},
                       {"columns", {{"messages", "dialog"}, {"system", "sys"}, {"images", "imgs"}}},
                       {"tags", {{"role_tag", "speaker"}, {"user_tag", "customer"}, {"assistant_tag", "gpt"}}}});
  const std::string yaml = kLlamaFactory.With("cutoff_len", "64", env);
  for (const char* line : {"data: {path: data/d.json, columns: {conversations: dialog, conversations.from: speaker, "
                           "system: sys}, roles: {user: customer}}  # dataset\n",
                           "its images 'imgs': images, video and sound are not supported"}) {
    EXPECT_NE(yaml.find(line), std::string::npos) << line << " is not in\n" << yaml;
  }
  EXPECT_FALSE(HasWord(yaml, "assistant_tag")) << "the default\n" << yaml;
}

TEST(Import, FieldsOfOtherToolsDataSetsBecomeColumns) {
  const auto llama_factory = [](const Json& entry) {
    Json with_file = entry;
    with_file["file_name"] = "d.json";
    MemoryEnv env = WithDatasetInfo(with_file);
    return kLlamaFactory.With("cutoff_len", "64", env);
  };
  const auto axolotl = [](const Json& entry) {
    Json with_path = entry;
    with_path["path"] = "d.jsonl";
    MemoryEnv env;
    return kAxolotl.With("datasets", Json::array({with_path}).dump(), env);
  };
  MemoryEnv none;
  const std::pair<std::string, std::string> runs[] = {
      {llama_factory({{"columns", {{"prompt", "frage"}, {"response", "antwort"}}}}),
       "columns: {instruction: frage, output: antwort}"},
      {llama_factory({{"columns", {{"prompt", "body"}}}}), "columns: {text: body}"},
      {llama_factory({{"formatting", "sharegpt"}, {"columns", {{"messages", "messages"}}}}),
       "columns: {conversations: messages}"},  // whose keys are from and value
      {axolotl({{"type", "chat_template"},
                {"field_messages", "chat"},
                {"field_tools", "functions"},
                {"message_property_mappings", {{"role", "who"}, {"content", "said"}, {"reasoning_content", "why"}}}}),
       "columns: {tools: functions, conversations: chat, conversations.from: who, conversations.value: said, "
       "conversations.reasoning_content: why}"},
      {axolotl({{"type", "chat_template"}, {"message_property_mappings", {{"role", "role"}, {"tool_calls", "calls"}}}}),
       "columns: {messages.tool_calls: calls}"},
      {axolotl({{"type", {{"field_instruction", "q"}, {"field_output", "a"}, {"format", "{one}"}}}}),
       "columns: {instruction: q, output: a}"},  // no row template can write it
      {axolotl({{"type", "completion"}, {"field", "body"}}), "columns: {text: body}"},
      {kTrl.With("dataset_text_field", "body", none), "\ncolumns: {text: body}  # dataset_text_field\n"},
  };
  for (const auto& [yaml, columns] : runs) EXPECT_NE(yaml.find(columns), yaml.npos) << columns << "\n" << yaml;
  for (const std::string& yaml : {axolotl({{"type", "chat_template"}, {"field_messages", "messages"}}),
                                  llama_factory({{"formatting", "sharegpt"},
                                                 {"columns", {{"messages", "messages"}}},
                                                 {"tags", {{"role_tag", "role"}, {"content_tag", "content"}}}})}) {
    EXPECT_EQ(yaml.find("columns"), yaml.npos) << yaml;
  }
}

TEST(Import, EmptyNamesInADataSetAreNamedAndReadAsIfTheyWereNotThere) {
  MemoryEnv env;
  const char* const listed[] = {
      "message_property_mappings: {role: who, content: content, name: ''}",
      "message_property_mappings: {role: '', content: said}",
      "message_property_mappings: {role: who, '': said}",
      "field_messages: ''",
      "message_field_role: ''",
      "field_instruction: ''",
  };
  for (const std::string entry : listed) {
    const std::string key = entry.substr(0, entry.find(':'));
    const std::string yaml = kAxolotl.With("datasets", "[{path: d.jsonl, " + entry + "}]", env);
    EXPECT_NE(yaml.find("# No equivalent:\n#   line 1, data set d.jsonl: " + key + ": "), yaml.npos) << yaml;
    EXPECT_NE(yaml.find("\ndata: "), yaml.npos) << yaml;
    EXPECT_EQ(HasWord(yaml, "conversations.from") || HasWord(yaml, "messages.role"), HasWord(entry, "who")) << yaml;
    EXPECT_EQ(HasWord(yaml, "conversations.value"), entry.ends_with("content: said}")) << yaml;
  }
  const std::pair<const char*, Json> of_info[] = {{"messages", {{"columns", {{"messages", ""}}}}},
                                                  {"role_tag", {{"tags", {{"role_tag", ""}}}}},
                                                  {"user_tag", {{"tags", {{"user_tag", ""}}}}}};
  for (const auto& [key, entry] : of_info) {
    Json with_file = entry;
    with_file["file_name"] = "d.json";
    with_file["formatting"] = "sharegpt";
    MemoryEnv with_info = WithDatasetInfo(with_file);
    const std::string yaml = kLlamaFactory.With("cutoff_len", "64", with_info);
    EXPECT_NE(yaml.find(fmt::format("data set demo: its {} ''\n", key)), yaml.npos) << yaml;
    EXPECT_NE(yaml.find("\ndata: data/d.json  # dataset\n"), yaml.npos) << yaml;
  }
}

// Elsewhere auto chooses the rows of a step. Ours only cuts them.
TEST(Import, AnAutomaticBatchSizeIsNamedAndNotTaken) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  for (const std::string& yaml : {kAxolotl.With("micro_batch_size", "auto\ngradient_accumulation_steps: 4", env),
                                  kLlamaFactory.With("per_device_train_batch_size", "auto", env)}) {
    EXPECT_NE(yaml.find("batch_size: auto: elsewhere the most rows that fit"), yaml.npos) << yaml;
    EXPECT_EQ(yaml.find("\nper_device_train_batch_size: auto"), yaml.npos) << yaml;
  }
}

// A null where the tool has a default: TRL's "no limit".
TEST(Import, ANullInPlaceOfADefaultIsNamed) {
  MemoryEnv env;
  EXPECT_NE(kTrl.With("max_length", "null", env).find("max_length: null: nothing in place of the default, 1024"),
            std::string::npos);
  EXPECT_FALSE(HasWord(kAxolotl.With("lora_model_dir", "", env), "lora_model_dir"));
}

// Recipes as their tools' examples have them, and what each does.
TEST(Import, RecipesForSomethingElseThanGivenAnswersAreRefusedUnlessTakenAsSft) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  const std::tuple<const Tool*, std::string, std::string> recipes[] = {
      {&kLlamaFactory, "stage: ppo\nreward_model: r\n", "line 1, stage: ppo: trains by rewards"},
      {&kLlamaFactory, "finetuning_type: freeze\n", "line 1, finetuning_type: freeze: trains only chosen weights"},
      {&kLlamaFactory, "finetuning_type: oft\n", "line 1, finetuning_type: oft: is another kind of adapter"},
      {&kAxolotl, "rl: grpo\ntrl: {beta: 0.1}\n", "line 1, rl: grpo: trains by rewards"},
      {&kAxolotl, "kd_trainer: true\n", "line 1, kd_trainer: true: trains on a teacher's distribution"},
      {&kAxolotl, "plugins: [axolotl.integrations.diffusion.DiffusionPlugin]\n", "trains by diffusion"},
      {&kAxolotl, "unfrozen_parameters: [lm_head]\n", "trains only chosen weights"},
      {&kTrl, "beta: 0.1\n", "line 1, beta: 0.1: TRL's SFT has no such setting"}};
  for (const auto& [tool, text, why] : recipes) {
    const auto refused = tool->Run(text, env);
    ASSERT_FALSE(refused.ok()) << text << refused->yaml;
    const std::string message = refused.status().message();
    EXPECT_NE(message.find(why), message.npos) << message;
    EXPECT_NE(message.find("--as sft"), message.npos) << message;
    const auto taken = tool->Run(text, env, &Sft());
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    bool named = false;
    for (const std::string& sentence : taken->lost) named |= sentence.find(why) != why.npos;
    EXPECT_TRUE(named) << text << taken->yaml;
  }
  for (const auto& [tool, text] : {std::pair{&kLlamaFactory, "stage: sft\nfinetuning_type: full\n"},
                                   {&kLlamaFactory, "stage: pt\n"},
                                   {&kAxolotl, "rl:\nreward_model: false\nadapter: qlora\n"}}) {
    const auto run = tool->Run(text, env);
    EXPECT_TRUE(run.ok()) << run.status().message();
  }
}

TEST(Import, CommandsOfOtherTrainersAreRefused) {
  MemoryEnv env;
  const auto run = [&](const std::string& command) {
    return ImportRun(env, command + " --model_name_or_path m --dataset_name d.jsonl", "f.sh",
                     {.tool = ForeignTool::kTrl});
  };
  for (const char* command : {"trl grpo", "accelerate launch --num_processes 2 trl/scripts/rloo.py",
                              "python run_ppo.py", "python cpo.py", "trl distillation"}) {
    const auto refused = run(command);
    EXPECT_FALSE(refused.ok()) << command;
    if (!refused.ok()) {
      EXPECT_NE(refused.status().message().find("line 1: "), std::string::npos);
    }
  }
  for (const char* command : {"trl sft", "accelerate launch sft.py", "python train_model.py"}) {
    const auto taken = run(command);
    EXPECT_TRUE(taken.ok()) << taken.status().message();
  }
}

TEST(Import, SettingsThatOnlyTrlsOtherTrainersHaveShowWhatAFileIsFor) {
  MemoryEnv env;
  auto tools = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/foreign_names/names.json");
  ASSERT_TRUE(tools.ok());
  // Generation has these, too, and some are ours.
  const std::set<std::string> shared = {"callbacks", "chat_template_kwargs", "label_smoothing",    "max_new_tokens",
                                        "min_p",     "temperature",          "repetition_penalty", "top_k",
                                        "top_p"};
  // These show which trainer it is, of one that is translated.
  const std::set<std::string> clear = {"desirable_weight", "undesirable_weight", "center_rewards_coefficient"};
  std::istringstream list((*tools)["TRL's other trainers"]["names"].get<std::string>());
  size_t count = 0;
  for (std::string name; list >> name; ++count) {
    EXPECT_EQ(kTrl.Run(name + ": 1\n", env).ok(), shared.contains(name) || clear.contains(name)) << name;
  }
  EXPECT_GT(count, 100u);
}

}  // namespace
}  // namespace temper::import_test
