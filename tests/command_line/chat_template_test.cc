// --chat_template: conversations with a base model that has no chat template, from training to export.
#include <sys/stat.h>

#include "data/template/known_templates.h"
#include "temper_program.h"

namespace temper::program::chat_template_test {
namespace {

constexpr char kTemplate[] = "chat_template.jinja";

std::string SourceOf(const std::string& name) {
  return temper::Slurp(std::string(kProjectFolder) + "/examples/templates/" + name + ".jinja");
}

class ChatTemplates : public Workplace {
 protected:
  // "base": the example's model without its template, on a tokenizer with chatml's markers but another EOS.
  ChatTemplates() {
    CopyModel("base");
    Json config = Json::parse(Slurp("base/tokenizer_config.json"));
    config.erase("chat_template");
    Spill("base/tokenizer_config.json", config.dump());
    if (Has("base/chat_template.jinja")) TEMPER_CHECK(PosixEnv().RemoveFile(Path("base/chat_template.jinja")).ok());
  }
  static Arguments TrainBase(const Arguments& more) {
    return With(Train({"--model", "base", "--max_steps", "2"}), more);
  }
  std::string Preview(const std::string& model, const Arguments& more = {}) const {
    Arguments run = {"data", "preview", "--model", model, "--data", "d.jsonl"};
    const Ended ended = Temper(With(run, more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  }
};

TEST_F(ChatTemplates, MessagesWithoutATemplateAreAnsweredWithTheOption) {
  const Ended ended = Temper(TrainBase({}));
  ExpectEnd(ended, 1, {"d.jsonl line 1: messages need a chat template", "--chat_template", "alpaca, chatml, gemma"});
  EXPECT_EQ(ended.err.find("--skip_bad_rows"), std::string::npos) << "it would skip every row";
  ExpectEnd(Temper({"chat", "base"}), 2, {"base has no chat template", "--chat_template"});
  ExpectEnd(Temper({"generate", "base", "--chat", "--prompt", "x"}), 2,
            {"base has no chat template", "--chat_template"});
  ExpectEnd(Temper(TrainBase({"--chat_template", "chatmll"})), 1, {"did you mean 'chatml'", "Give a file"});
}

TEST_F(ChatTemplates, HelpNamesAllThatComeWithTheProgram) {
  const std::string help = Temper({"train", "--help"}).out;
  std::string text;  // without line ends and indentation
  for (const char c : help) {
    if (c != '\n' && c != ' ') text += c;
  }
  std::string names;
  for (const KnownTemplate& known : KnownTemplates()) names += (names.empty() ? "" : ",") + std::string(known.name);
  EXPECT_NE(text.find("afile(Jinja),or" + names), std::string::npos) << names;
}

TEST_F(ChatTemplates, AnAdapterKeepsItsTemplateInEveryCommand) {
  ExpectEnd(Temper(TrainBase({"--chat_template", "alpaca"})), 0, {"template    alpaca", "chat out"});
  for (const char* folder : {"out/", "out/checkpoint-2/"})
    EXPECT_EQ(Slurp(std::string(folder) + kTemplate), SourceOf("alpaca"));
  EXPECT_NE(Slurp("out/run.yaml").find("chat_template: alpaca\n"), std::string::npos);
  EXPECT_NE(Preview("out").find("### Instruction:"), std::string::npos);
  EXPECT_NE(Preview("out/checkpoint-2").find("### Instruction:"), std::string::npos);
  EXPECT_NE(Preview("out", {"--chat_template", "zephyr"}).find("<|user|>\n"), std::string::npos);
  ExpectEnd(Temper({"eval", "out", "--data", "e.jsonl", "--threads", "1"}), 0, {"6 rows of messages"});
  ExpectEnd(Temper({"generate", "out", "--chat", "--prompt", "x", "--max_new_tokens", "2", "--threads", "1"}), 0, {});
  ExpectEnd(Temper({"export", "out", "--output_dir", "merged"}), 0, {});
  EXPECT_EQ(Slurp(std::string("merged/") + kTemplate), SourceOf("alpaca"));
  // Trained on, the adapter's template goes into the new result.
  ExpectEnd(Temper(Train({"--model", "out", "--max_steps", "1", "--output_dir", "more"})), 0, {});
  EXPECT_EQ(Slurp(std::string("more/") + kTemplate), SourceOf("alpaca"));
}

TEST_F(ChatTemplates, AFullRunIsAModelWithTheTemplate) {
  ExpectEnd(Temper(TrainBase({"--chat_template", "alpaca", "--method", "full"})), 0, {});
  for (const char* folder : {"out/", "out/checkpoint-2/"})
    EXPECT_EQ(Slurp(std::string(folder) + kTemplate), SourceOf("alpaca"));
  ExpectEnd(Temper({"export", "out", "--output_dir", "exported"}), 0, {});
  EXPECT_EQ(Slurp(std::string("exported/") + kTemplate), SourceOf("alpaca"));
}

// The example's model with its own template, which another one replaces.
TEST_F(ChatTemplates, AnotherTemplateReplacesTheModelsOwnAndSaysSo) {
  Spill("mine.jinja",
        "{% for m in messages %}{{ '<|' + m.role + '|>~' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>~' }}{% endif %}");
  const Ended ended = Temper(Train({"--chat_template", "mine.jinja", "--max_steps", "1"}));
  ExpectEnd(ended, 0, {"template    mine.jinja, not the model's own (", "tokenizer_config.json"});
  EXPECT_EQ(Slurp(std::string("out/") + kTemplate), Slurp("mine.jinja"));
  EXPECT_NE(Preview("out").find("<|user|>~"), std::string::npos);
  ExpectEnd(Temper(Train({"--output_dir", "own", "--max_steps", "1"})), 0, {});
  EXPECT_FALSE(Has(std::string("own/") + kTemplate)) << "the model's own is in tokenizer_config.json";
}

// Generation and transformers stop where the template ends a turn, also if the model's files name another token.
TEST_F(ChatTemplates, TheEndOfATurnEndsAnAnswer) {
  for (const char* file : {"base/config.json", "base/generation_config.json"}) {
    Json config = Json::parse(Slurp(file));
    config["eos_token_id"] = 0;
    Spill(file, config.dump());
  }
  Json tokens = Json::parse(Slurp("base/tokenizer_config.json"));
  tokens["eos_token"] = "<|begin|>";
  Spill("base/tokenizer_config.json", tokens.dump());
  Spill("mine.jinja",
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}");
  const Ended ended = Temper(TrainBase({"--chat_template", "mine.jinja", "--method", "full"}));
  ExpectEnd(ended, 0, {});
  EXPECT_EQ(ended.err.find("will not learn to stop"), std::string::npos) << ended.err;
  ExpectEnd(Temper({"export", "out", "--output_dir", "exported"}), 0, {});
  ExpectEnd(Temper(TrainBase({"--chat_template", "mine.jinja", "--output_dir", "adapter"})), 0, {});
  EXPECT_NE(Slurp("adapter/README.md").find("GenerationConfig.from_pretrained"), std::string::npos);
  for (const char* folder : {"out", "out/checkpoint-2", "exported", "adapter", "adapter/checkpoint-2"}) {
    const Json generation = Json::parse(Slurp(std::string(folder) + "/generation_config.json"));
    EXPECT_EQ(generation["eos_token_id"], Json({0, 1})) << folder;
  }
  // Another run in the same folder does not keep the end of this template.
  ExpectEnd(Temper(Train({"--output_dir", "adapter", "--overwrite", "--max_steps", "1"})), 0, {});
  EXPECT_FALSE(Has("adapter/generation_config.json"));
  EXPECT_EQ(Slurp("adapter/README.md").find("GenerationConfig.from_pretrained"), std::string::npos);
}

TEST_F(ChatTemplates, ResumeKeepsTheTemplateAndRefusesAnotherOne) {
  Spill("mine.jinja", SourceOf("alpaca"));
  const Arguments run = TrainBase({"--chat_template", "mine.jinja", "--save_steps", "1", "--max_steps", "2"});
  ExpectEnd(Temper(run), 0, {});
  const std::string whole = Slurp("out/adapter_model.safetensors"), settings = Slurp("out/run.yaml");
  const auto resume = [&](const Arguments& more) {
    return Temper(With(run, With({"--resume=out/checkpoint-1"}, more)));
  };
  ExpectEnd(resume({}), 0, {"resume      from out/checkpoint-1"});
  EXPECT_TRUE(Slurp("out/adapter_model.safetensors") == whole);
  ExpectEnd(resume({"--chat_template", "chatml"}), 2,
            {"out/checkpoint-1 was trained with another chat template", "Leave out --chat_template"});
  Spill("mine.jinja", SourceOf("zephyr"));
  ExpectEnd(resume({}), 2, {"out/checkpoint-1 was trained with another chat template"});
  // The checkpoint has it: neither the option nor the file is needed.
  TEMPER_CHECK(PosixEnv().RemoveFile(Path("mine.jinja")).ok());
  Arguments bare = With(run, {"--chat_template="});
  bare.pop_back();
  bare.push_back("--resume=out/checkpoint-1");
  ExpectEnd(Temper(bare), 0, {"resume      from out/checkpoint-1"});
  EXPECT_TRUE(Slurp("out/adapter_model.safetensors") == whole);
  EXPECT_EQ(Slurp("out/run.yaml"), settings);
}

TEST_F(ChatTemplates, AResumeIsNotComparedWithATemplateThatCannotBeRead) {
  CopyModel("own");
  ExpectEnd(Temper(Train({"--model", "own", "--max_steps", "1"})), 0, {});
  Json config = Json::parse(Slurp("own/tokenizer_config.json"));
  config["chat_template"] = 5;
  Spill("own/tokenizer_config.json", config.dump());
  ExpectEnd(Temper(Train({"--model", "own", "--max_steps", "2", "--resume", "--chat_template", "alpaca"})), 1,
            {"own/tokenizer_config.json", "chat_template"});
}

// On a tokenizer without the markers: a line says so, rows are named, and a run of several ranks gives the same.
TEST_F(ChatTemplates, WhatTheDataAndTheTokenizerLackIsSaidByRow) {
  Spill("d.jsonl", R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}
{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":""}],"id":7}
{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"moon","arguments":{}}}]},{"role":"tool","content":"c"},{"role":"assistant","content":"d"}]}
)");
  const Arguments run = TrainBase({"--chat_template", "chatml"});
  ExpectEnd(
      Temper(run), 0,
      {"chat template chatml: the tokenizer has no token <|im_start|>, <|im_end|>, and reads them as text",
       "not trained on: 1 empty answer; the first: d.jsonl line 2, message 2", "fields that are not read: 'id' (1 row)",
       "left out of training by the chat template: tool calls of 1 turn (the first: d.jsonl line 3, message 2); 1 turn "
       "that says nothing else is not trained on",
       "without an end token: 2 turns", "the first: d.jsonl line 1"});
  ExpectEnd(Temper(With(run, {"--output_dir", "two", "--nprocs", "2"})), 0, {"not trained on: 1 empty answer"});
  EXPECT_EQ(Slurp(std::string("two/") + kTemplate), SourceOf("chatml"));
}

// Only turns that count can be left out of training. What turns say is named however many other fields there are.
TEST_F(ChatTemplates, FieldsThatTheTemplateDoesNotPrintAreNamedApartFromWhatTurnsSay) {
  Json user = {{"role", "user"}, {"content", "a"}};
  for (int i = 0; i < 10; ++i) user["field" + std::to_string(i)] = "value";
  const Json chat = {user,
                     {{"role", "assistant"}, {"content", "b"}, {"reasoning_content", "Easy."}},
                     user,
                     {{"role", "assistant"}, {"content", "c"}}};
  Spill("d.jsonl", Json{{"messages", chat}}.dump() + "\n");
  const Ended ended = Temper(TrainBase({"--chat_template", "chatml"}));
  ExpectEnd(ended, 0,
            {"left out of training by the chat template: reasoning of 1 turn (the first: d.jsonl line 1, message 2)\n",
             "not printed by the chat template: 'field0' of 2 messages (the first: d.jsonl line 1, message 1); ",
             "'field7' of 2 messages (the first: d.jsonl line 1, message 1); and 2 more\n"});
}

// Before 4.53, transformers saved every template in tokenizer_config.json, and so did whoever trained the adapter.
TEST_F(ChatTemplates, AnAdaptersTemplateCountsWhereverItKeepsIt) {
  ExpectEnd(Temper(Train({"--max_steps", "1", "--output_dir", "other"})), 0, {});
  const std::string mine =
      "{% for m in messages %}{{ '<|' + m.role + '|>~' + m.content + '<|end|>' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|assistant|>~' }}{% endif %}";
  Json config = Json::parse(Slurp("other/tokenizer_config.json"));
  config["chat_template"] = mine;
  config["eos_token"] = "<|begin|>";
  Spill("other/tokenizer_config.json", config.dump());
  const std::vector<std::string> said = {
      "template    the adapter's (other/tokenizer_config.json, chat_template), not its base's (",
      "the adapter's tokenizer has eos_token '<|begin|>', that of its base"};
  const Ended preview = Temper({"data", "preview", "--model", "other", "--data", "d.jsonl"});
  ExpectEnd(preview, 0, said);
  EXPECT_NE(preview.out.find("<|user|>~"), std::string::npos) << preview.out;
  ExpectEnd(Temper({"eval", "other", "--data", "e.jsonl", "--threads", "1"}), 0, said);
  ExpectEnd(Temper({"generate", "other", "--chat", "--prompt", "x", "--max_new_tokens", "2", "--threads", "1"}), 0,
            said);
  ExpectEnd(Temper({"export", "other", "--output_dir", "exported"}), 0, said);
  EXPECT_EQ(Slurp(std::string("exported/") + kTemplate), mine);
  EXPECT_NE(Preview("other", {"--chat_template", "zephyr"}).find("<|user|>\n"), std::string::npos);
  // One that cannot be read is no reason to refuse what needs none.
  config["chat_template"] = 1;
  Spill("other/tokenizer_config.json", config.dump());
  ExpectEnd(Temper({"eval", "other", "--data", "e.jsonl", "--threads", "1"}), 0,
            {"warning: ", "the chat template of the adapter's base is used"});
  // Trained on, it goes into the new result; a tool_use of its own as well.
  config["chat_template"] = Json::array({{{"name", "default"}, {"template", mine}},
                                         {{"name", "tool_use"}, {"template", "TOOLS" + mine}},
                                         {{"name", "../odd"}, {"template", "x"}}});
  Spill("other/tokenizer_config.json", config.dump());
  ExpectEnd(Temper(Train({"--model", "other", "--max_steps", "1", "--output_dir", "more"})), 0, {"the adapter's ("});
  for (const char* folder : {"more/", "more/checkpoint-1/"}) {
    EXPECT_EQ(Slurp(std::string(folder) + kTemplate), mine);
    EXPECT_EQ(Slurp(std::string(folder) + "additional_chat_templates/tool_use.jinja"), "TOOLS" + mine);
  }
}

// A model whose template for tools lies beside the one without.
TEST_F(ChatTemplates, BesideTheMainOneAreKeptAsTransformersKeepsThem) {
  const std::string tool_use = "additional_chat_templates/tool_use.jinja", plain = SourceOf("chatml");
  Spill(std::string("base/") + kTemplate, plain);
  TEMPER_CHECK(PosixEnv().CreateFolders(Path("base/additional_chat_templates")).ok());
  Spill("base/" + tool_use, "TOOLS " + plain);
  Json row =
      Json::parse(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})");
  std::string rows = row.dump() + "\n";
  row["tools"] = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])");
  rows += row.dump() + "\n";
  Spill("d.jsonl", rows);
  const std::string seen = Preview("base");
  ASSERT_NE(seen.find("TOOLS"), std::string::npos) << seen;
  const auto keeps = [&](const std::string& folder) {
    EXPECT_EQ(Slurp(folder + "/" + tool_use), Slurp("base/" + tool_use)) << folder;
    EXPECT_EQ(Slurp(folder + "/" + kTemplate), plain) << folder;
  };
  ExpectEnd(Temper(TrainBase({"--method", "full", "--save_steps", "1"})), 0, {});
  ExpectEnd(Temper({"export", "out", "--output_dir", "exported"}), 0, {});
  for (const char* folder : {"out", "out/checkpoint-1", "exported"}) {
    keeps(folder);
    EXPECT_EQ(Preview(folder), seen) << folder;
  }
  ExpectEnd(Temper(TrainBase({"--method", "full", "--save_steps", "1", "--resume=out/checkpoint-1"})), 0,
            {"resume      from out/checkpoint-1"});
  keeps("out");
  ExpectEnd(Temper(TrainBase({"--output_dir", "adapter"})), 0, {});
  keeps("adapter");
  EXPECT_EQ(Preview("adapter"), seen);
  EXPECT_EQ(Preview("adapter/checkpoint-2"), seen);
  // Another template replaces them all, also where an earlier result had them.
  for (const char* method : {"full", "lora"}) {
    ExpectEnd(Temper(TrainBase({"--method", method, "--chat_template", "alpaca", "--overwrite"})), 0, {});
    ExpectEnd(Temper({"export", "out", "--output_dir", "exported", "--overwrite"}), 0, {});
    for (const char* folder : {"out/", "out/checkpoint-2/", "exported/"}) {
      EXPECT_FALSE(Has(folder + tool_use)) << folder << " of " << method;
      EXPECT_EQ(Slurp(std::string(folder) + kTemplate), SourceOf("alpaca")) << folder;
    }
  }
}

}  // namespace
}  // namespace temper::program::chat_template_test
