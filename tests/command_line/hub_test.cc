// Models and data sets by their names in the Hugging Face cache.
#include <filesystem>

#include "temper_program.h"

namespace temper::program::hub_test {
namespace {

// A cache, set for the programs that a test starts, that holds the example's model and its data as `hf download` lays
// them out.
class Hub : public Workplace {
 protected:
  void SetUp() override {
    Workplace::SetUp();
    setenv("HF_HUB_CACHE", Path("hub").c_str(), 1);
    for (const std::string& name : Must(PosixEnv().List(kModel)))
      Add("models--org--tiny", name, JoinPath(kModel, name));
    Add("datasets--org--rows", "train.jsonl", Path("d.jsonl"));
    Add("datasets--org--rows", "eval/held.jsonl", Path("e.jsonl"));
  }
  void TearDown() override { unsetenv("HF_HUB_CACHE"); }

  void Add(const std::string& repository, const std::string& file, const std::string& content) {
    const std::string folder = "hub/" + repository;
    const std::string link = Path(folder + "/snapshots/" + kCommit + "/" + file);
    ASSERT_TRUE(PosixEnv().CreateFolders(FolderOf(link)).ok());
    ASSERT_TRUE(PosixEnv().CreateFolders(Path(folder + "/refs")).ok());
    std::filesystem::create_symlink(content, link);
    Spill(folder + "/refs/main", kCommit);
  }

  const std::string kCommit = std::string(40, 'c');
};

TEST_F(Hub, ANameTrainsIsRecordedAndFoundAgain) {
  Spill("run.yaml",
        "model: org/tiny\ndata: org/rows/train.jsonl\neval_data: org/rows@main/eval/held.jsonl\n"
        "output_dir: out\nmax_steps: 2\neval_steps: 2\nmax_seq_len: 64\nper_device_train_batch_size: 2\nthreads: 1\n");
  ExpectEnd(Temper({"train", "run.yaml"}), 0, {"train.jsonl: "});
  // As PEFT writes it.
  const Json adapter = Json::parse(Slurp("out/adapter_config.json"));
  EXPECT_EQ(adapter["base_model_name_or_path"], "org/tiny");
  EXPECT_EQ(adapter["revision"], kCommit) << "a branch moves";
  EXPECT_NE(Slurp("out/run.yaml").find("model: org/tiny\n"), std::string::npos) << Slurp("out/run.yaml");
  EXPECT_NE(Slurp("out/run.yaml").find("data: org/rows/train.jsonl\n"), std::string::npos);
  // Every command takes the result, whose base is found by its name, and the name itself.
  for (const std::string& model : {std::string("out"), std::string("org/tiny"), "org/tiny@" + kCommit}) {
    ExpectEnd(Temper({"eval", "--model", model, "--data", "org/rows/eval/held.jsonl", "--threads", "1"}), 0,
              {"held.jsonl"});
    ExpectEnd(Temper({"generate", "--model", model, "--prompt", "Why", "--max_new_tokens", "2", "--threads", "1"}), 0,
              {});
    ExpectEnd(Temper({"data", "preview", "--model", model, "--data", "org/rows/train.jsonl"}), 0, {});
    ExpectEnd(Temper({"inspect", model}), 0, {});
  }
  ExpectEnd(Temper({"plan", "--model", "org/tiny"}), 0, {});
  ExpectEnd(Temper({"export", "--model", "out", "--output_dir", "merged"}), 0, {"merged with the adapter"});
  ExpectEnd(Temper({"train", "run.yaml", "--resume"}), 0, {"resume"});
  ExpectEnd(Temper({"train", "--model", "org/tiny@main", "--data", "org/rows/train.jsonl", "--output_dir", "rev",
                    "--max_steps", "1", "--max_seq_len", "64", "--threads", "1"}),
            0, {});
  EXPECT_EQ(Json::parse(Slurp("rev/adapter_config.json"))["revision"], kCommit);
}

TEST_F(Hub, WhatTheCacheLacksIsExplained) {
  ExpectEnd(Temper({"plan", "--model", "org/none"}), 1, {"fetch it with `hf download org/none`"});
  ExpectEnd(Temper({"inspect", "org/none"}), 1, {"fetch it with `hf download org/none`"});
  ExpectEnd(Temper({"eval", "--model", "org/tiny", "--data", "org/rows"}), 2,
            {"--data org/rows has the splits test, train: name one (--split test"});
  ASSERT_TRUE(PosixEnv().RemoveFile(Path("hub/models--org--tiny/snapshots/" + kCommit + "/model.safetensors")).ok());
  ExpectEnd(Temper({"plan", "--model", "org/tiny"}), 0, {});
  ExpectEnd(Temper({"eval", "--model", "org/tiny", "--data", "e.jsonl"}), 1, {"has no weights: finish the download"});
}

}  // namespace
}  // namespace temper::program::hub_test
