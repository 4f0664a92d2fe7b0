#include "config/import.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "format/json.h"
#include "format/memory_env_for_test.h"

namespace temper::import_test {
namespace {

// Whether `text` has `word`, not as a part of another name.
bool HasWord(const std::string& text, const std::string& word) {
  const auto of_name = [&](size_t i) { return std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_'; };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !of_name(at - 1)) && (end == text.size() || !of_name(end))) return true;
  }
  return false;
}

struct Tool {
  ForeignTool tool;
  const char* name;
  std::vector<std::pair<std::string, std::string>> lines;  // of a file that says what each must

  // The result for such a file with another line; an error is its message.
  std::string With(const std::string& key, const std::string& value, MemoryEnv& env) const {
    std::string text = fmt::format("{}: {}\n", key, value);
    for (const auto& [name, given] : lines) {
      if (name != key) text += fmt::format("{}: {}\n", name, given);
    }
    const auto run = ImportRun(env, text, "f.yaml", tool, {});
    return run.ok() ? run->yaml : run.status().message();
  }
};

const Tool kLlamaFactory = {ForeignTool::kLlamaFactory,
                            "LLaMA-Factory",
                            {{"model_name_or_path", "m"}, {"dataset", "demo"}, {"dataset_dir", "data"}}};
const Tool kAxolotl = {ForeignTool::kAxolotl, "Axolotl", {{"base_model", "m"}, {"datasets", "[d.jsonl]"}}};
const Tool kTrl = {ForeignTool::kTrl, "TRL", {{"model_name_or_path", "m"}, {"dataset_name", "d.jsonl"}}};

MemoryEnv WithDatasetInfo(const Json& entry) {
  MemoryEnv env;
  env.files["data/dataset_info.json"] = Json{{"demo", entry}}.dump();
  return env;
}

Json KnownValues(const char* of) {
  auto tools = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/foreign_names/names.json");
  TEMPER_CHECK(tools.ok()) << tools.status().message();
  return (*tools)[of]["values"];
}

// Each value of names.json differs from the tool's default.
TEST(Import, EveryValueOfEverySettingOfEachToolIsTranslatedOrNamed) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  for (const Tool* tool : {&kLlamaFactory, &kAxolotl, &kTrl}) {
    int count = 0;
    const Json known = KnownValues(tool->name);
    for (const auto& [key, values] : known.items()) {
      for (const Json& value : values) {
        const std::string result = tool->With(key, value.dump(), env);
        EXPECT_TRUE(HasWord(result, key)) << tool->name << ", " << key << ": " << value << "\n" << result;
        ++count;
      }
    }
    EXPECT_GT(count, 200) << tool->name;
  }
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
      EXPECT_TRUE(HasWord(yaml, key == "num_samples" && value != 0 ? "max_samples" : key)) << entry << "\n" << yaml;
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
                              Json{{"prompt", "prompt"}, {"response", "completion"}, {"query", "input"}},
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
      EXPECT_TRUE(HasWord(yaml, file || key == "type" ? "abc" : key)) << entry << "\n" << yaml;
    }
  }
}

TEST(Import, WhatAFileLeavesAtTheDefaultIsNotListed) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}, {"split", "train"}});
  for (const char* line : {"use_dora", "streaming", "pissa_init", "shift_attn"}) {
    EXPECT_FALSE(HasWord(kLlamaFactory.With(line, "false", env), line)) << line;
  }
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
TEST(Import, Yaml11sYesAndNoAreBooleans) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  for (const char* yes : {"yes", "Yes", "on", "ON", "true"}) {
    EXPECT_NE(kLlamaFactory.With("bf16", yes, env).find("\ndtype: bf16  # bf16\n"), std::string::npos) << yes;
    EXPECT_NE(kLlamaFactory.With("packing", yes, env).find("\npacking: true\n"), std::string::npos) << yes;
  }
  EXPECT_NE(kLlamaFactory.With("packing", "no", env).find("\npacking: false\n"), std::string::npos);
  EXPECT_NE(kTrl.With("save_strategy", "no", env).find("\nsave_steps: 0  # save_strategy\n"), std::string::npos);
  EXPECT_NE(kTrl.With("max_length", "2_048", env).find("\nmax_seq_len: 2048  # max_length\n"), std::string::npos);
  const std::string quoted = kLlamaFactory.With("packing", "'yes'", env);
  EXPECT_NE(quoted.find("packing should be true or false"), std::string::npos) << quoted;
  const auto command = ImportRun(env, "python sft.py --model_name_or_path m --dataset_name d.jsonl --bf16 yes", "f.sh",
                                 ForeignTool::kTrl, {});
  ASSERT_TRUE(command.ok()) << command.status().message();
  EXPECT_NE(command->yaml.find("\ndtype: bf16  # bf16\n"), std::string::npos) << command->yaml;
}

TEST(Import, LlamaFactorysColumnsAndTagsAreNamedWithWhatTemperReads) {
  MemoryEnv env =
      WithDatasetInfo({{"file_name", "d.json"},
                       {"formatting", "sharegpt"},
                       {"columns", {{"messages", "dialog"}, {"system", "sys"}, {"images", "imgs"}}},
                       {"tags", {{"role_tag", "speaker"}, {"user_tag", "customer"}, {"assistant_tag", "gpt"}}}});
  const std::string yaml = kLlamaFactory.With("cutoff_len", "64", env);
  for (const char* line : {"system: rename the field 'sys' of its rows to system",
                           "its images 'imgs': images, video and sound are not supported",
                           "role_tag: rename the field 'speaker' of its rows to from",
                           "user_tag: rename the role 'customer' of its messages to human"}) {
    EXPECT_NE(yaml.find(line), std::string::npos) << line << " is not in\n" << yaml;
  }
  EXPECT_FALSE(HasWord(yaml, "assistant_tag")) << "the default\n" << yaml;
}

}  // namespace
}  // namespace temper::import_test
