// Tokens that a run keeps for the next start: never others than a fresh start would make.
#include <algorithm>
#include <chrono>
#include <thread>

#include "temper_program.h"

namespace temper::program::data_cache_test {
namespace {

constexpr char kUsed[] = "data, tokenizer and settings are the same";

class DataCache : public Workplace {
 protected:
  // Paths of the token files in a folder.
  std::vector<std::string> TokenFiles(const std::string& folder = "out") const {
    std::vector<std::string> paths;
    for (const std::string& name : Must(PosixEnv().List(Path(folder)))) {
      if (name.starts_with("tokens-")) paths.push_back(JoinPath(folder, name));
    }
    return paths;
  }
  // Runs with these options and says whether it used kept tokens.
  bool Uses(const Arguments& more) const {
    const Ended ended = Temper(Train(With({"--overwrite"}, more)));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.err.find(kUsed) != std::string::npos;
  }
};

TEST_F(DataCache, KeptTokensTrainTheSameBitsOnAnyRanks) {
  for (const Arguments& ranks : {Arguments{}, {"--nprocs", "2", "--mesh", "fsdp=2"}}) {
    Arguments run = {"--eval_data", "e.jsonl", "--eval_steps", "2"};
    run.insert(run.end(), ranks.begin(), ranks.end());
    EXPECT_FALSE(Uses(run));
    const auto fresh = BytesOf(Path("out"));
    EXPECT_TRUE(fresh.count("adapter_model.safetensors") && fresh.count("metrics.jsonl"));
    EXPECT_TRUE(Uses(run));
    EXPECT_TRUE(BytesOf(Path("out")) == fresh);
    EXPECT_EQ(TokenFiles().size(), 2u) << "of the data and of the evaluation's";
    ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
  }
}

TEST_F(DataCache, TokensAreUsedWhileAllTheyDependOnIsTheSame) {
  const std::string model = CopyModel("model");
  const Arguments run = {"--model", model};
  EXPECT_FALSE(Uses(run));
  EXPECT_TRUE(Uses(run));
  // The content counts, not its time or its place.
  Spill("d.jsonl", Slurp("d.jsonl"));
  Spill("copy.jsonl", Slurp("d.jsonl"));
  EXPECT_TRUE(Uses(With(run, {"--data", "copy.jsonl"})));
  EXPECT_TRUE(Uses(With(run, {"--learning_rate", "1e-5", "--packing", "false"}))) << "no token depends on these";

  EXPECT_FALSE(Uses(With(run, {"--max_seq_len", "80"})));
  EXPECT_EQ(TokenFiles().size(), 1u) << "the old ones are gone";
  EXPECT_FALSE(Uses(With(run, {"--train_on_prompt"})));
  std::string text = Slurp("d.jsonl");
  const size_t letter = text.find("\"content\": \"") + 12;
  ASSERT_LT(letter, text.size());
  text[letter] = text[letter] == 'x' ? 'y' : 'x';
  EXPECT_FALSE(Uses(run));
  Spill("d.jsonl", text);
  EXPECT_FALSE(Uses(run)) << "another letter";
  EXPECT_TRUE(Uses(run));
  EXPECT_FALSE(Uses(With(run, {"--columns", "messages.role=role"}))) << "another name of a column";
  EXPECT_FALSE(Uses(run));
  temper::Spill(JoinPath(model, "tokenizer.json"), temper::Slurp(JoinPath(model, "tokenizer.json")) + "\n");
  EXPECT_FALSE(Uses(run)) << "another tokenizer";
}

TEST_F(DataCache, UnknownTokensAreToldBeforeEveryStart) {
  CopyModel("few");
  Spill(
      "few/tokenizer.json",
      R"({"added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "</s>", "special": true}],
            "model": {"type": "BPE", "unk_token": "<unk>", "merges": [],
                      "vocab": {"<unk>": 0, "</s>": 1, "a": 2, "b": 3, " ": 4}}})");
  Spill("few/tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"})");
  Spill("few.jsonl", R"({"prompt": "a=", "completion": "b==+"})"
                     "\n");
  const Arguments data = {"--model", "few", "--data", "few.jsonl"};
  const std::string told = "warning: 4 tokens of 7 are <unk>, which stands for text without a token: = +\n";
  const Ended shown = Temper(With({"data", "preview", "--tokens"}, data));
  EXPECT_NE(shown.err.find(told), std::string::npos) << shown.err;
  EXPECT_NE(shown.out.find("     5       0  [[<unk> for \"+\"]]\n"), std::string::npos) << shown.out;
  ExpectEnd(Temper(With({"data", "preview", "--tokens", "--json"}, data)), 2, {"leave out --tokens"});
  for (const bool kept : {false, true}) {
    const Ended ended = Temper(Train(With({"--overwrite"}, data)));
    EXPECT_NE(ended.err.find(told), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find(kUsed) != std::string::npos, kept);
  }
}

TEST_F(DataCache, ARefusedRunKeepsTheTokensOfTheRunBefore) {
  ASSERT_EQ(Temper(Train({"--save_steps", "2"})).code, 0);
  const auto before = TokenFiles();
  ASSERT_EQ(before.size(), 1u);
  const Ended refused = Temper(Train({"--save_steps", "2", "--resume", "--data", "e.jsonl"}));
  EXPECT_NE(refused.err.find("e.jsonl has changed"), std::string::npos) << refused.err;
  const auto after = TokenFiles();
  EXPECT_EQ(std::count(after.begin(), after.end(), before[0]), 1);
}

TEST_F(DataCache, ADamagedFileIsMadeAgain) {
  ASSERT_EQ(Temper(Train({})).code, 0);
  const std::string adapter = Slurp("out/adapter_model.safetensors"), file = TokenFiles()[0], whole = Slurp(file);
  std::string damaged = whole;
  damaged[whole.size() / 3] ^= 4;
  for (const std::string& bytes : {damaged, whole.substr(0, whole.size() / 2), std::string()}) {
    Spill(file, bytes);
    ExpectEnd(Temper(Train({"--overwrite"})), 0, {"warning: out/tokens-", "is damaged", "it is made again"});
    EXPECT_TRUE(Slurp(file) == whole);
    EXPECT_TRUE(Slurp("out/adapter_model.safetensors") == adapter);
  }
}

TEST_F(DataCache, IsSharedByRunsThatNameIt) {
  EXPECT_FALSE(Uses({"--data_cache", "kept/here"}));
  EXPECT_TRUE(TokenFiles().empty());
  EXPECT_TRUE(Uses({"--data_cache", "kept/here", "--output_dir", "other"}));
  EXPECT_FALSE(Uses({"--data_cache", "kept/here", "--max_seq_len", "80"}));
  EXPECT_EQ(TokenFiles("kept/here").size(), 2u) << "other runs may need them";
  // Beginning at once.
  std::vector<std::unique_ptr<Process>> runs;
  for (const char* out : {"a", "b", "c"}) {
    runs.push_back(std::make_unique<Process>(Command(Train({"--data_cache", "once", "--output_dir", out})), folder()));
  }
  for (const auto& run : runs) EXPECT_EQ(run->Wait().code, 0);
  EXPECT_EQ(TokenFiles("once").size(), 1u);
  for (const char* out : {"b", "c"}) {
    EXPECT_TRUE(Slurp("a/adapter_model.safetensors") == Slurp(std::string(out) + "/adapter_model.safetensors"));
  }
}

TEST_F(DataCache, AFolderThatCannotBeWrittenIsReportedWithTheRemedy) {
  Spill("file", "");
  ExpectEnd(Temper(Train({"--data_cache", "file/cache"})), 1, {"file/cache", "Not a directory", "--data_cache FOLDER"});
}

TEST_F(DataCache, ARunKilledWhileItTokenizesLeavesNothingThatCounts) {
  std::string rows;
  for (int i = 0; i < 300; ++i) rows += Slurp("d.jsonl");
  Spill("d.jsonl", rows);
  for (const int signal : {SIGKILL, SIGINT}) {
    Process run(Command(Train({"--max_steps", "1"})), folder());
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto writes = [&] { return Has("out") && !TokenFiles().empty() && TokenFiles()[0].ends_with(".tmp"); };
    while (!writes() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    run.Signal(signal);
    (void)run.Wait();
    ASSERT_EQ(TokenFiles().size(), 1u);
    ASSERT_TRUE(TokenFiles()[0].ends_with(".tmp")) << "it was killed too late";
  }
  EXPECT_FALSE(Uses({"--max_steps", "1"}));
  ASSERT_EQ(TokenFiles().size(), 1u);
  EXPECT_TRUE(TokenFiles()[0].ends_with(".bin"));
  EXPECT_TRUE(Uses({"--max_steps", "1"}));
}

}  // namespace
}  // namespace temper::program::data_cache_test
