#include "config/import_data.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "config/import_for_test.h"

namespace temper::import_test::import_data_test {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

constexpr std::string_view kTemplates[] = {"alpaca", "chatml", "llama3", "zephyr"};

std::string Imported(MemoryEnv& env, const std::string& text, ForeignTool tool, const ObjectiveRule* as = nullptr) {
  const auto run = ImportRun(env, text, "f.yaml", {.tool = tool, .as = as, .templates = kTemplates});
  return run.ok() ? run->yaml : run.status().message();
}

// trl/scripts: train_dataset is the split train, eval_dataset the split test if eval_strategy is not no.
TEST(ImportData, AFolderOfTrlsIsReadBySplits) {
  MemoryEnv env;
  env.files["pref/train.jsonl"] = env.files["pref/test.jsonl"] = R"({"prompt": "a", "chosen": "b", "rejected": "c"})";
  env.files["pref/dev.jsonl"] = "";
  const std::string recipe = "model_name_or_path: m\ndataset_name: pref\n",
                    evaluates = recipe + "eval_strategy: steps\neval_steps: 5\nload_best_model_at_end: true\n";
  const std::string yaml = Imported(env, evaluates, ForeignTool::kTrl, &Dpo());
  for (const char* line :
       {"\ndata: pref/train.jsonl  # dataset_name\n", "\neval_data: pref/test.jsonl  # dataset_name\n",
        "\neval_steps: 5\n", "\nload_best_model_at_end: true\n"}) {
    EXPECT_TRUE(Has(yaml, line)) << line << yaml;
  }
  EXPECT_FALSE(Has(yaml, "No equivalent")) << yaml;
  EXPECT_FALSE(Has(Imported(env, recipe, ForeignTool::kTrl, &Dpo()), "\neval_data:")) << "it does not evaluate";
  const std::string other = Imported(env, evaluates + "dataset_test_split: validation\ndataset_train_split: train\n",
                                     ForeignTool::kTrl, &Dpo());
  EXPECT_TRUE(Has(other, "\neval_data: pref/dev.jsonl")) << other;
  const std::string hub =
      Imported(env, "model_name_or_path: m\ndataset_name: org/set\neval_strategy: steps\n", ForeignTool::kTrl, &Dpo());
  EXPECT_TRUE(Has(hub, "TRL evaluates on the split test of it: add eval_data: org/set/test.jsonl")) << hub;
  EXPECT_FALSE(
      Has(Imported(env, "model_name_or_path: m\ndataset_name: org/set\neval_strategy: no\n", ForeignTool::kTrl),
          "TRL evaluates"));
}

TEST(ImportData, AFolderOfAxolotlsIsReadByItsSplit) {
  MemoryEnv env;
  env.files["set/train.jsonl"] = env.files["set/test.jsonl"] = "{}";
  const std::string yaml =
      Imported(env, "base_model: m\ndatasets: [{path: set}]\ntest_datasets: [{path: set, split: test}]\n",
               ForeignTool::kAxolotl);
  EXPECT_TRUE(Has(yaml, "\ndata: set/train.jsonl  # datasets\n")) << yaml;
  EXPECT_TRUE(Has(yaml, "\neval_data: set/test.jsonl  # test_datasets\n")) << yaml;
  EXPECT_FALSE(Has(yaml, "No equivalent")) << yaml;
}

TEST(ImportData, StylesThatWriteTurnsByThemselvesBecomeAChatTemplate) {
  MemoryEnv env;
  for (const auto& [type, written] :
       {std::pair{"llama3.ultra", "llama3"}, {"chatml.intel", "chatml"}, {"zephyr.nectar", ""}}) {
    const std::string yaml =
        Imported(env, fmt::format("base_model: m\nrl: dpo\ndatasets: [{{path: d.jsonl, type: {}}}]\n", type),
                 ForeignTool::kAxolotl);
    const std::string line = fmt::format("\nchat_template: {}  # datasets\n", written);
    EXPECT_EQ(Has(yaml, line), *written != 0) << line << yaml;
    EXPECT_FALSE(Has(yaml, "the model's chat template does")) << yaml;
  }
  const std::string alpaca =
      Imported(env, "base_model: m\ndatasets: [{path: d.jsonl, type: alpaca}]\n", ForeignTool::kAxolotl);
  EXPECT_TRUE(Has(alpaca, "\nchat_template: alpaca  # datasets\n")) << alpaca;
}

TEST(ImportData, FieldsOfAPromptAreJoinedAsTheToolJoinsThem) {
  const char* const line = "\nprompt_separator: \"\\n\"  # dataset\n";
  MemoryEnv unknown = WithDatasetInfo({{"file_name", "d.json"}});
  EXPECT_TRUE(Has(kLlamaFactory.Run("", unknown)->yaml, line)) << kLlamaFactory.Run("", unknown)->yaml;
  MemoryEnv with_input = unknown, without = unknown;
  with_input.files["data/d.json"] = R"([{"instruction": "a", "input": "{b", "output": "c"}])";
  without.files["data/d.json"] = R"([{"instruction": "a", "output": "c"}])";
  EXPECT_TRUE(Has(kLlamaFactory.Run("", with_input)->yaml, line));
  EXPECT_FALSE(Has(kLlamaFactory.Run("", without)->yaml, "prompt_separator"));
  MemoryEnv turns = WithDatasetInfo({{"file_name", "d.json"}, {"formatting", "sharegpt"}});
  EXPECT_FALSE(Has(kLlamaFactory.Run("", turns)->yaml, "prompt_separator"));
  MemoryEnv none;
  const auto alpaca = [&] {
    return Imported(none, "base_model: m\ndatasets: [{path: d.jsonl, type: alpaca}]\n", ForeignTool::kAxolotl);
  };
  EXPECT_TRUE(Has(alpaca(), "\nprompt_separator: \"\\n\\n### Input:\\n\"  # datasets\n")) << alpaca();
  none.files["d.jsonl"] = R"({"instruction": "a", "output": "c"})";
  EXPECT_FALSE(Has(alpaca(), "prompt_separator")) << alpaca();
}

TEST(ImportData, NamesOfSpeakersBecomeRoles) {
  MemoryEnv env;
  const auto axolotl = [&](const std::string& roles) {
    return Imported(env, "base_model: m\ndatasets: [{path: d.jsonl, type: chat_template, roles: " + roles + "}]\n",
                    ForeignTool::kAxolotl);
  };
  const std::string both = axolotl("{user: [customer, client], assistant: [agent]}");
  EXPECT_TRUE(Has(both, "\ndata: {path: d.jsonl, roles: {user: [customer, client], assistant: agent}}  # datasets\n"))
      << both;
  EXPECT_FALSE(Has(both, "No equivalent")) << both;
  EXPECT_TRUE(
      Has(axolotl("{judge: [x]}"), "# No equivalent:\n#   line 2, data set d.jsonl: roles: {\"judge\":[\"x\"]}"));
  const Json tags = {{"user_tag", "customer"}, {"assistant_tag", "agent"}, {"function_tag", "call"}};
  MemoryEnv info = WithDatasetInfo({{"file_name", "d.json"}, {"formatting", "sharegpt"}, {"tags", tags}});
  const auto factory = kLlamaFactory.Run("", info);
  EXPECT_TRUE(Has(factory->yaml, "{path: data/d.json, roles: {assistant: agent, function_call: call, user: customer}}"))
      << factory->yaml;
}

TEST(ImportData, APromptStyleOfOnesOwnBecomesARowTemplate) {
  MemoryEnv env;
  const auto with = [&](const std::string& entries, const std::string& more = "") {
    return Imported(env, "base_model: m\ndatasets: [" + entries + "]\n" + more, ForeignTool::kAxolotl);
  };
  const std::string own =
      "type: {field_instruction: q, field_output: a, format: '[INST] {instruction} [/INST]', "
      "no_input_format: '[INST] {instruction} [/INST]'}";
  const std::string yaml = with("{path: d.jsonl, " + own + "}", "chat_template: chatml\n");
  EXPECT_TRUE(Has(yaml, "\nrow_template: \"{% if system %}{{ system }}{% endif %}{{ \\\"[INST] \\\" }}{{ q }}"))
      << yaml;
  EXPECT_TRUE(Has(yaml, "{% generation %}{{ a }}{% endgeneration %}\"  # datasets\n")) << yaml;
  EXPECT_FALSE(Has(yaml, "columns:")) << yaml;
  EXPECT_TRUE(Has(yaml, "chat_template: row_template makes the whole text of a row")) << yaml;
  EXPECT_TRUE(Has(with("{path: d.jsonl, " + own + "}, {path: e.jsonl, " + own + "}"), "\nrow_template: "));
  const std::string mixed = with("{path: d.jsonl, " + own + "}, {path: e.jsonl, type: chat_template}");
  EXPECT_FALSE(Has(mixed, "\nrow_template: ")) << mixed;
  EXPECT_TRUE(Has(mixed, "a prompt style of your own that is not that of all data sets")) << mixed;
}

TEST(ImportData, WithoutAStrategyThereIsNoEvaluation) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  const auto factory = [&](const std::string& lines) {
    return kLlamaFactory.Run("val_size: 0.1\n" + lines, env)->yaml;
  };
  EXPECT_TRUE(Has(factory(""), "\neval_strategy: no  # the default of LLaMA-Factory\n") ||
              Has(factory(""), "\neval_strategy: \"no\"  # the default of LLaMA-Factory\n"))
      << factory("");
  EXPECT_FALSE(Has(factory("eval_strategy: steps\neval_steps: 5\n"), "default of LLaMA-Factory, no"));
  const std::string steps = factory("eval_steps: 5\n");
  EXPECT_TRUE(Has(steps, "#   eval_steps: eval_strategy is not given, and without it there is no evaluation")) << steps;
  EXPECT_FALSE(Has(steps, "\neval_steps:")) << steps;
  const std::string once = factory("do_eval: true\n");
  EXPECT_FALSE(Has(once, "\neval_strategy:")) << once;
  EXPECT_TRUE(Has(once, "LLaMA-Factory evaluates once, at the end")) << once;
  const auto axolotl = [&](const std::string& lines) { return kAxolotl.Run("val_set_size: 0.1\n" + lines, env)->yaml; };
  EXPECT_TRUE(Has(axolotl(""), "eval_strategy: ")) << axolotl("");
  EXPECT_FALSE(Has(axolotl("evals_per_epoch: 4\n"), "eval_strategy: ")) << axolotl("evals_per_epoch: 4\n");
}

// TRL's SFT masks nothing of a conversation unless assistant_only_loss is given; of a prompt and completion the prompt.
TEST(ImportData, TrlTrainsOnEveryTokenOfMessagesAndSoDoesTheRun) {
  MemoryEnv env;
  env.files["d.jsonl"] = R"({"messages": [{"role": "user", "content": "a"}]})";
  EXPECT_TRUE(Has(kTrl.Run("", env)->yaml, "\ntrain_on_prompt: true  # the default of TRL for rows with messages\n"));
  EXPECT_FALSE(Has(kTrl.Run("assistant_only_loss: true\n", env)->yaml, "train_on_prompt: true"));
  env.files["d.jsonl"] = R"({"prompt": "a", "completion": "b"})";
  EXPECT_FALSE(Has(kTrl.Run("", env)->yaml, "train_on_prompt"));
  EXPECT_FALSE(Has(kTrl.Run("", env)->yaml, "assistant_only_loss"));
  env.files.erase("d.jsonl");
  EXPECT_TRUE(Has(kTrl.Run("", env)->yaml, "assistant_only_loss is not given: TRL trains on every token"));
}

TEST(ImportData, TokensOfTheVocabularyNeedNoSetting) {
  MemoryEnv env;
  env.files["m/tokenizer.json"] = R"({"added_tokens": [{"id": 2, "content": "<|im_end|>"}]})";
  const auto with = [&](const std::string& lines) {
    return Imported(env, "base_model: m\ndatasets: [d.jsonl]\n" + lines, ForeignTool::kAxolotl);
  };
  EXPECT_TRUE(Has(with("special_tokens: {eos_token: <|im_end|>, pad_token: <pad>}\n"),
                  "the model's tokenizer has it; a turn ends as the chat template ends it"));
  EXPECT_TRUE(Has(with("special_tokens: {pad_token: <pad>}\n"), "padding is never read"));
  EXPECT_TRUE(Has(with("tokens: [<|im_end|>]\n"), "# Not needed:\n#   line 3, tokens: [\"<|im_end|>\"]: the model's"));
  const std::string far =
      Imported(env, "model_name_or_path: org/m\ndataset_name: d.jsonl\neos_token: <|im_end|>\n", ForeignTool::kTrl);
  EXPECT_TRUE(Has(far, "a token that the model's tokenizer has is used as it is")) << far;
}

// Axolotl's `tokens` are no special ones, LLaMA-Factory's add_tokens neither.
TEST(ImportData, NewTokensAreAddedAndTheirRowsTrained) {
  MemoryEnv env = WithDatasetInfo({{"file_name", "d.json"}});
  env.files["m/tokenizer.json"] = R"({"added_tokens": [{"id": 2, "content": "<|im_end|>"}]})";
  const auto with = [&](const std::string& lines) {
    return Imported(env, "base_model: m\ndatasets: [d.jsonl]\n" + lines, ForeignTool::kAxolotl);
  };
  const std::string plain = with("tokens: [<|im_start|>, <|im_end|>]\n");
  EXPECT_TRUE(Has(plain, R"(add_tokens: "[{\"content\":\"<|im_start|>\",\"special\":false,\"normalized\":false}]")"))
      << plain;
  EXPECT_TRUE(Has(plain, "'<|im_start|>' is new: rows of new tokens begin as the mean of all")) << plain;
  const std::string special =
      with("special_tokens: {eos_token: <|im_end|>, additional_special_tokens: [<a>, <b>]}\ntokens: [<c>]\n");
  EXPECT_TRUE(Has(special, R"(add_tokens: "[\"<a>\",\"<b>\",{\"content\":\"<c>\")")) << special;
  EXPECT_TRUE(Has(special, "a turn ends as the chat template ends it")) << special;
  const std::string both =
      kLlamaFactory.Run("add_special_tokens: <a>, <b>\nadd_tokens: c,d\nresize_vocab: true\n", env)->yaml;
  EXPECT_TRUE(Has(
      both,
      R"(add_tokens: "[\"<a>\",\"<b>\",{\"content\":\"c\",\"special\":false,\"normalized\":false},{\"content\":\"d\")"))
      << both;
  EXPECT_TRUE(Has(both, "resize_vocab: true: it is so here, too")) << both;
  env.files["t.yaml"] = "<x>: a token\n<y>: another\n";
  const std::string file = kLlamaFactory.Run("new_special_tokens_config: t.yaml\n", env)->yaml;
  EXPECT_TRUE(Has(file, R"(add_tokens: "[\"<x>\",\"<y>\"]")")) << file;
  EXPECT_TRUE(Has(with("adapter: lora\npeft_trainable_token_indices: [5, 7]\n"), "trainable_token_indices: [5, 7]"));
}

TEST(ImportData, RolesThatAreReadAnywayAreNotListed) {
  MemoryEnv env;
  const auto with = [&](const std::string& entry) {
    return Imported(env, "base_model: m\ndatasets: [{path: d.jsonl, type: chat_template, " + entry + "}]\n",
                    ForeignTool::kAxolotl);
  };
  EXPECT_FALSE(Has(with("roles: {user: [user], assistant: [assistant]}"), "roles"));
  EXPECT_FALSE(Has(with("field_messages: conversations, message_property_mappings: {role: from, content: value}, "
                        "roles: {user: [human, user], assistant: [gpt, assistant]}"),
                   "roles"));
  EXPECT_TRUE(Has(with("roles: {user: [human]}"), "roles: {user: human}")) << "in messages this name is refused";
}

// interleave_datasets: by their shares, until the first data set ends, or until all have.
TEST(ImportData, SharesOfDataSetsBecomePassesWhereTheirRowsCanBeCounted) {
  MemoryEnv env;
  env.files["data/dataset_info.json"] = R"({"a": {"file_name": "a.json"}, "b": {"file_name": "b.jsonl"}})";
  env.files["data/a.json"] = R"([{"instruction": "x", "output": "y"}, {"instruction": "x", "output": "y"}])";
  std::string& rows = env.files["data/b.jsonl"];
  for (int i = 0; i < 6; ++i) rows += "{\"instruction\": \"x\", \"output\": \"y\"}\n\n";
  const auto with = [&](const std::string& lines) {
    return Imported(env, "model_name_or_path: m\nstage: sft\ndataset: a,b\ndataset_dir: data\n" + lines,
                    ForeignTool::kLlamaFactory);
  };
  const auto passes = [](const std::string& a, const std::string& b) {
    return fmt::format("\ndata: [{}, {}]  # dataset\n",
                       a == "1" ? "data/a.json" : fmt::format("{{path: data/a.json, passes: {}}}", a),
                       b == "1" ? "data/b.jsonl" : fmt::format("{{path: data/b.jsonl, passes: {}}}", b));
  };
  // Of 2 and 6 rows with equal shares 2 and 2 are seen, or 6 and 6.
  const std::string under = with("mix_strategy: interleave_under\ninterleave_probs: 0.5,0.5\n");
  EXPECT_TRUE(Has(under, passes("1", "0.3333"))) << under;
  EXPECT_TRUE(Has(under, "passes an epoch are 1, 0.3333, of 2, 6 rows")) << under;
  EXPECT_TRUE(Has(with("mix_strategy: interleave_over\n"), passes("3", "1")));
  EXPECT_TRUE(Has(with("mix_strategy: interleave_over\ninterleave_probs: [0.25, 0.75]\n"), passes("1", "1")));
  const std::string once = with("mix_strategy: interleave_once\ninterleave_probs: 0.5,0.5\n");
  EXPECT_TRUE(Has(once, passes("1", "1"))) << once;
  EXPECT_TRUE(Has(once, "each sample is seen once an epoch")) << once;
  for (const char* lines : {"mix_strategy: interleave_under\ninterleave_probs: 0.5,0.2\n",
                            "mix_strategy: interleave_under\ninterleave_probs: 1\n", "interleave_probs: 0.5,0.5\n"}) {
    const std::string lost = with(lines);
    EXPECT_TRUE(Has(lost, "interleave_probs: ")) << lost;
    EXPECT_TRUE(Has(lost, "each file of data has its own passes")) << lost;
    EXPECT_TRUE(Has(lost, passes("1", "1"))) << lost;
  }
  env.files.erase("data/b.jsonl");
  EXPECT_TRUE(Has(with("mix_strategy: interleave_under\n"), "each file of data has its own passes"));
}

TEST(ImportData, ARecipeWithoutDataIsNamed) {
  MemoryEnv env;
  EXPECT_TRUE(Has(Imported(env, "base_model: m\n", ForeignTool::kAxolotl), "the recipe names no data: add data: FILE"));
}

}  // namespace
}  // namespace temper::import_test::import_data_test
