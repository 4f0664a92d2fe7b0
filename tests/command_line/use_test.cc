// What a new user types: the model as the first word, completion, the manual page, names of models,
// and what a finished run leaves behind.
#include <sys/ioctl.h>
#include <termios.h>

#include <chrono>
#include <set>
#include <sstream>
#include <thread>

#include "temper_program.h"

namespace temper::program::use_test {
namespace {

using Use = Workplace;

TEST_F(Use, AnswersAreSampledAsTheModelsGenerationConfigSays) {
  CopyModel("own");
  Spill("own/generation_config.json",
        R"({"do_sample": true, "temperature": 5.0, "top_p": 0.9, "repetition_penalty": 1.5})");
  const auto answer = [&](const Arguments& more) {
    return Temper(With({"generate", "own", "--prompt", "Why?", "--max_new_tokens", "20", "--threads", "1"}, more));
  };
  const Ended sampled = answer({}), greedy = answer({"--temperature", "0"});
  ExpectEnd(sampled, 0,
            {"sampling: temperature 5, top_k 50, top_p 0.9, repetition_penalty 1.5, as generation_config.json says"});
  EXPECT_NE(sampled.out, greedy.out);
  EXPECT_EQ(sampled.out, answer({}).out) << "the same seed";
  EXPECT_EQ(greedy.err.find("sampling:"), std::string::npos) << greedy.err;
}

TEST_F(Use, ChatMarksAnswersThatAreCut) {
  const Ended cut = Process({"sh", "-c",
                             std::string("echo 'Why does it rain?' | ") + kProgram + " chat " + kModel +
                                 " --threads 1 --max_new_tokens 5"},
                            folder())
                        .Wait();
  EXPECT_NE(cut.err.find("the answer is cut off after 5 tokens: raise --max_new_tokens"), std::string::npos) << cut.err;
}

TEST_F(Use, ChatKnowsItsCommands) {
  const auto chat = [&](const std::string& lines) {
    return Process({"sh", "-c",
                    "printf '" + lines + "' | " + kProgram + " chat " + kModel + " --threads 1 --max_new_tokens 5"},
                   folder())
        .Wait();
  };
  const std::string first = chat("Why does it rain?\\n").out;
  Ended ended = chat("/help\\n/nwe\\n\\nWhy does it rain?\\n/quit\\nWhy is ice cold?\\n");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, first) << "only the message is answered, and nothing after /quit";
  for (const char* part : {"  /system TEXT ", "  /quit ", "no command '/nwe'; /help lists them"}) {
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  }
  const std::string told = chat("/system Talk like a pirate.\\nWhy does it rain?\\n").out;
  EXPECT_EQ(told, Process({"sh", "-c",
                           std::string("echo 'Why does it rain?' | ") + kProgram + " chat " + kModel +
                               " --system 'Talk like a pirate.' --threads 1 --max_new_tokens 5"},
                          folder())
                      .Wait()
                      .out);
  EXPECT_EQ(chat("/system Talk like a pirate.\\n/system\\nWhy does it rain?\\n").out, first);
}

TEST_F(Use, TheFirstWordIsTheModel) {
  const Arguments generate = {"--prompt", "Why?", "--max_new_tokens", "3", "--threads", "1"};
  const Ended named = Temper(With({"generate", "--model", kModel}, generate));
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(Temper(With({"generate", kModel}, generate)).out, named.out);
  EXPECT_EQ(Temper({"eval", kModel, "--data", "e.jsonl"}).code, 0);
  EXPECT_EQ(Temper({"data", "preview", kModel, "--data", "e.jsonl"}).code, 0);
  EXPECT_EQ(Temper({"export", kModel, "--output_dir", "copy"}).code, 0);
  EXPECT_EQ(Temper({"inspect", "--model", "copy"}).code, 0);
  ExpectEnd(Temper(With({"generate", kModel, "--model", "copy"}, generate)), 2,
            {"model is given twice, as '" + kModel + "' and as 'copy'"});
  ExpectEnd(Temper({"generate", kModel, "Why?"}), 2, {"'Why?' is not an option: this command takes one model"});
  ExpectEnd(Temper({"generate", kModel, "prompt=Why?"}), 2, {"'prompt=Why?' needs two dashes"});
  ExpectEnd(Temper({"chat"}), 2, {"name a model: temper chat MODEL"});
  ExpectEnd(Temper({"train", kModel}), 2, {"if it is the model, write --model " + kModel});
  ExpectEnd(Temper({"train", "--model", kModel, "e.jsonl"}), 2, {"e.jsonl", "if it is data, write --data e.jsonl"});
  ExpectEnd(Temper({"generate", kModel}), 2, {"there is no prompt: add --prompt TEXT"});
}

TEST_F(Use, RepetitionPenaltyChangesAGreedyAnswer) {
  const Arguments generate = {"generate", kModel, "--prompt", "Why does it rain?", "--threads", "1"};
  const std::string plain = Temper(generate).out;
  EXPECT_NE(Temper(With(generate, {"--repetition_penalty", "3"})).out, plain);
  EXPECT_EQ(Temper(With(generate, {"--repetition_penalty", "1", "--min_p", "0.3"})).out, plain)
      << "greedy: no cut counts";
  EXPECT_EQ(Temper(With(generate, {"--temperature", "1", "--min_p", "1"})).out, plain) << "only the best is left";
  ExpectEnd(Temper(With(generate, {"--min_p", "2"})), 2, {"min_p should be at least 0 and at most 1"});
}

TEST_F(Use, AnOptionWithTwoValuesIsRefused) {
  Arguments run = Train({});
  run.insert(run.end(), {"--max_steps", "9"});
  ExpectEnd(Temper(run), 2, {"max_steps is given twice, as '4' and as '9': remove one"});
  EXPECT_FALSE(Has("out"));
}

TEST_F(Use, PlanKnowsModelsByName) {
  const Ended plan = Temper({"plan", "--json", "--model", "llama-3.1-405b", "--cluster", "8xMI300X", "--lora.r", "8",
                             "--max_seq_len", "64", "--mesh", "fsdp=8"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(Json::parse(plan.out)["parameters"], 405853388800);
  ExpectEnd(Temper({"plan", "--model", "lama-3.1-405b"}), 1, {"did you mean 'llama-3.1-405b'?"});
  ExpectEnd(Temper({"plan", "--model", "meta-llama/Llama-3.1-405B"}), 1, {"did you mean 'llama-3.1-405b'?"});
  const std::string machines = std::string(kProjectFolder) + "/examples/clusters/8xH100.yaml";
  ExpectEnd(Temper({"plan", machines, "--model", "opt-125m"}), 2, {"not a run: write --cluster " + machines});
  ExpectEnd(Temper({"plan", "--model", "mine"}), 1, {"there is no such folder", "Known are", "qwen3-8b"});
  ExpectEnd(Temper({"plan", "--model", "opt-125m", "--data", "d.jsonl", "--read_data"}), 2, {"a tokenizer is needed"});
  ExpectEnd(Temper(Train({"--model", "opt-125m"})), 1, {"temper plan knows this name, but not the weights"});
}

TEST_F(Use, AMissingModelIsToldBeforeAMissingDataFile) {
  ExpectEnd(Temper(Train({"--model", "nowhere", "--data", "none.jsonl"})), 1, {"--model nowhere: there is no such"});
  ExpectEnd(Temper(Train({"--data", "none.jsonl"})), 1, {"--data", "none.jsonl"});
  EXPECT_FALSE(Has("out"));
}

TEST_F(Use, AMeshOfTheFileThatStaysIsNamed) {
  Spill("run.yaml", "model: " + kModel + "\nmax_seq_len: 64\nmesh: {dp: 2, fsdp: 2}\n");
  const Ended kept = Temper({"plan", "run.yaml", "--mesh", "fsdp=4"});
  ExpectEnd(kept, 0, {"dp=2 of run.yaml still counts: 8 ranks in all", "--mesh dp=1"});
  EXPECT_NE(kept.out.find("dp=2,fsdp=4: 8 ranks"), std::string::npos) << kept.out;
  const Ended replaced = Temper({"plan", "run.yaml", "--mesh", "dp=1,fsdp=4"});
  EXPECT_EQ(replaced.err.find("still counts"), std::string::npos) << replaced.err;
  EXPECT_NE(replaced.out.find("fsdp=4: 4 ranks"), std::string::npos) << replaced.out;
}

TEST_F(Use, AnAdapterStandsAloneWithTokenizerAndModelCard) {
  const Ended ended = Temper(Train({"--eval_data", "e.jsonl"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  for (const char* part : {"batch       1 row of 96 tokens a step: 1 row x 1 micro-batch, 96 tokens"}) {
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  }
  EXPECT_EQ(ended.err.find("ETA 0"), std::string::npos) << ended.err;
  // Lines to paste name the program as it was called.
  for (const char* part : {" chat out\n", " generate out --prompt", " export out --output_dir out-merged"}) {
    EXPECT_NE(ended.err.find(std::string("  ") + kProgram + part), std::string::npos) << ended.err;
  }
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(Slurp(JoinPath("out", file)), temper::Slurp(JoinPath(kModel, file))) << file;
  }
  EXPECT_FALSE(Has("out/config.json")) << "it is no model";
  const std::string card = Slurp("out/README.md");
  EXPECT_TRUE(card.starts_with("---\nbase_model: \"" + kModel + "\"\nlibrary_name: peft\n")) << card;
  for (const char* part : {"| steps | 4 |", "| training loss at the end | ", "| lowest evaluation loss | ",
                           "`d.jsonl`, ", "| lora.r | 16 |", "AutoPeftModelForCausalLM", "temper chat FOLDER"}) {
    EXPECT_NE(card.find(part), std::string::npos) << part << "\n" << card;
  }
  EXPECT_EQ(card.find("num_train_epochs"), std::string::npos) << "max_steps overrides it";
  EXPECT_EQ(Temper({"export", "out", "--output_dir", "merged"}).code, 0);
  const std::string merged = Slurp("merged/README.md");
  EXPECT_TRUE(merged.starts_with("---\nbase_model: \"" + kModel + "\"\nlibrary_name: transformers\n")) << merged;
  for (const char* part : {"# model with a LoRA adapter, merged\n\nThe merged LoRA adapter of `", "| steps | 4 |",
                           "| lora.r | 16 |", " AutoModelForCausalLM.from_pretrained", "temper chat FOLDER"}) {
    EXPECT_NE(merged.find(part), std::string::npos) << part << "\n" << merged;
  }
  EXPECT_EQ(merged.find("peft"), std::string::npos) << merged;
  // --overwrite replaces our card, and keeps a user's.
  EXPECT_EQ(Temper(Train({"--overwrite", "--max_steps", "2"})).code, 0);
  EXPECT_NE(Slurp("out/README.md").find("| steps | 2 |"), std::string::npos);
  Spill("out/README.md", "mine");
  EXPECT_EQ(Temper(Train({"--overwrite", "--max_steps", "2"})).code, 0);
  EXPECT_EQ(Slurp("out/README.md"), "mine");
}

TEST_F(Use, AdviceToRaiseMaxSeqLenComesOnlyWhereTheModelAllowsIt) {
  const Json config = Json::parse(temper::Slurp(kModel + "/config.json"));
  const std::string most = std::to_string(config["max_position_embeddings"].get<int64_t>());
  std::string text = "{\"prompt\": \"Why?\", \"completion\": \"";
  for (int i = 0; i < 2000; ++i) text += "water ";
  Spill("long.jsonl", text + "\"}\n");
  const auto warned = [&](const std::string& row) {
    return Temper({"data", "preview", kModel, "--data", "long.jsonl", "--max_seq_len", row}).err;
  };
  EXPECT_NE(warned("64").find("raise --max_seq_len (the model has " + most + " positions)"), std::string::npos);
  const std::string full = warned(most);
  EXPECT_NE(full.find("make these rows shorter: the model has " + most + " positions"), std::string::npos) << full;
  EXPECT_EQ(full.find("raise"), std::string::npos) << full;
}

// What bash would offer for the last of these words.
std::set<std::string> Completed(const std::string& words, const std::string& cwd) {
  const Ended ended =
      Process({"bash", "-c",
               std::string("source <(") + kProgram + " completion bash); COMP_WORDS=(" + words +
                   "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _temper; printf '%s\\n' \"${COMPREPLY[@]}\""},
              cwd)
          .Wait();
  std::set<std::string> offered;
  std::string line;
  for (const char c : ended.out) {
    if (c != '\n') {
      line += c;
    } else {
      offered.insert(std::exchange(line, {}));
    }
  }
  return offered;
}

TEST_F(Use, BashCompletesCommandsOptionsAndValues) {
  using Set = std::set<std::string>;
  EXPECT_EQ(Completed("temper tr", folder()), Set{"train"});
  EXPECT_EQ(Completed("temper train --lora.a", folder()), (Set{"--lora.alpha", "--lora.alpha_pattern"}));
  EXPECT_EQ(Completed("temper train --method ''", folder()), (Set{"full", "lora"}));
  EXPECT_EQ(Completed("temper export --dtype = f", folder()), (Set{"f16", "f32"}));
  EXPECT_EQ(Completed("temper train --data d", folder()), Set{"d.jsonl"});
  EXPECT_EQ(Completed("temper eval e", folder()), Set{"e.jsonl"}) << "the model";
  EXPECT_EQ(Completed("temper train --no-pack", folder()), Set{"--no-packing"});
  EXPECT_TRUE(Completed("temper plan --cluster 8x", folder()).contains("8xH100"));
  EXPECT_EQ(Completed("temper plan --model llama-3.1-4", folder()), Set{"llama-3.1-405b"});
  EXPECT_EQ(Completed("temper plan --model d.", folder()), Set{"d.jsonl"}) << "or a path";
  EXPECT_EQ(Completed("temper data p", folder()).count("preview"), 1u);
  EXPECT_EQ(Completed("temper completion ''", folder()), (Set{"bash", "fish", "zsh"}));
  EXPECT_TRUE(Completed("temper train --seed ''", folder()) == Set{""});
}

TEST_F(Use, CompletionScriptsAreValid) {
  for (const auto& [shell, check] : {std::pair{"bash", "-n"}, {"zsh", "-n"}, {"fish", "--no-execute"}}) {
    const Ended script = Temper({"completion", shell});
    ASSERT_EQ(script.code, 0) << script.err;
    for (const char* option : {"lora.r", "repetition_penalty", "calibrate"}) {
      EXPECT_NE(script.out.find(option), std::string::npos) << shell;
    }
    Spill("script", script.out);
    if (std::system(("command -v " + std::string(shell) + " >/dev/null 2>&1").c_str()) != 0) continue;
    const Ended checked = Process({shell, check, "script"}, folder()).Wait();
    EXPECT_EQ(checked.code, 0) << shell << ": " << checked.err;
  }
  ExpectEnd(Temper({"completion", "tcsh"}), 2, {"temper completion bash, zsh or fish"});
}

TEST_F(Use, TheManualPageHasEveryOptionOfTheHelp) {
  const Ended page = Temper({"man"});
  ASSERT_EQ(page.code, 0) << page.err;
  std::string text = page.out;
  for (size_t at; (at = text.find("\\-")) != std::string::npos;) text.erase(at, 1);
  for (const char* command : {"train", "plan", "generate", "chat", "eval", "data", "export", "inspect", "doctor"}) {
    std::istringstream help(Temper({command, "--help"}).out);
    for (std::string line; std::getline(help, line);) {
      if (!line.starts_with("  --")) continue;
      const std::string option = line.substr(2, line.find(' ', 2) - 2);
      EXPECT_NE(text.find(".B " + option), std::string::npos) << command << " " << option;
    }
  }
  if (std::system("command -v groff >/dev/null 2>&1") != 0) GTEST_SKIP() << "no groff here";
  Spill("temper.1", page.out);
  const Ended set = Process({"groff", "-man", "-Tascii", "-ww", "temper.1"}, folder()).Wait();
  EXPECT_EQ(set.code, 0);
  EXPECT_EQ(set.err, "");
}

}  // namespace
}  // namespace temper::program::use_test
