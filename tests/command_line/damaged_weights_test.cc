// A bit that a disk or a copy has flipped in weights that Temper wrote: every command that reads them says so, and none
// makes anything of them.
#include "temper_program.h"

namespace temper::program::damaged_weights_test {
namespace {

using DamagedWeights = Workplace;

TEST_F(DamagedWeights, AreFoundByEveryCommandThatReadsThem) {
  for (const std::string method : {"lora", "full"}) {
    const bool lora = method == "lora";
    const std::string file = lora ? "adapter_model.safetensors" : "model.safetensors";
    ASSERT_EQ(Temper(Train({"--method", method, "--max_steps", "2", "--output_dir", method})).code, 0);
    ASSERT_EQ(Temper({"export", "--model", method, "--output_dir", method + "_exported"}).code, 0);
    for (const std::string& folder : {method, method + "/checkpoint-2", method + "_exported"}) {
      SCOPED_TRACE(folder);
      const std::string path = JoinPath(folder, folder.ends_with("_exported") ? "model.safetensors" : file);
      const std::string whole = Slurp(path);
      std::string damaged = whole;
      damaged[damaged.size() - 100] ^= 4;  // of a number: still one
      const bool adapter = lora && path.ends_with(file) && !folder.ends_with("_exported");
      const std::vector<Arguments> commands = {
          {"export", "--model", folder, "--output_dir", "made"},
          {"generate", "--model", folder, "--prompt", "x", "--max_new_tokens", "1"},
          {"eval", "--model", folder, "--data", "e.jsonl"},
          {"inspect", folder},
          adapter ? Train({"--adapter", folder, "--output_dir", "trained"})
                  : Train({"--model", folder, "--output_dir", "trained"}),
      };
      Spill(path, damaged);
      for (const Arguments& command : commands) {
        ExpectEnd(Temper(command), 1, {path, "is damaged"});
        EXPECT_FALSE(Has("made/config.json") || Has("trained/run.yaml")) << command[0];
      }
      Spill(path, whole);
      for (const Arguments& command : commands) EXPECT_EQ(Temper(command).code, 0) << command[0];
      for (const char* made : {"made", "trained"}) ASSERT_TRUE(PosixEnv().RemoveTree(Path(made)).ok());
    }
  }
}

// Training ends by making its result of what it saved.
TEST_F(DamagedWeights, AreNotResumedFromNorMadeTheResultOfARun) {
  ASSERT_EQ(Temper(Train({"--max_steps", "2"})).code, 0);
  const std::string path = "out/checkpoint-2/adapter_model.safetensors";
  std::string damaged = Slurp(path);
  damaged[damaged.size() - 100] ^= 4;
  Spill(path, damaged);
  ExpectEnd(Temper(Train({"--max_steps", "2", "--resume"})), 1, {path, "is damaged"});

  // With these learning rates the first step is the best, so that the end of the run takes another checkpoint than the
  // one that it resumes from.
  for (const std::string method : {"lora", "full"}) {
    const Arguments run = Train({"--method", method, "--output_dir", method, "--max_steps", "3", "--save_steps", "1",
                                 "--eval_data", "e.jsonl", "--eval_steps", "1", "--load_best_model_at_end", "true",
                                 "--learning_rate", method == "lora" ? "0.1" : "0.3"});
    ExpectEnd(Temper(run), 0, {"at step 1"});
    const std::string file = method == "lora" ? "adapter_model.safetensors" : "model.safetensors";
    const std::string best = method + "/checkpoint-1/" + file, result = method + "/" + file;
    damaged = Slurp(best);
    damaged[damaged.size() - 100] ^= 4;
    Spill(best, damaged);
    ASSERT_TRUE(PosixEnv().RemoveFile(Path(result)).ok());
    ExpectEnd(Temper(With(run, {"--resume"})), 1, {best, "is damaged"});
    EXPECT_FALSE(Has(result));
  }
}

// The tools of others read and replace these files.
TEST_F(DamagedWeights, WeightsThatWereReplacedNeedTheirOldChecksumsGone) {
  ASSERT_EQ(Temper({"export", "--model", kModel, "--output_dir", "a"}).code, 0);
  ASSERT_EQ(Temper({"export", "--model", kModel, "--output_dir", "b", "--dtype", "f32"}).code, 0);
  Spill("a/model.safetensors", Slurp("b/model.safetensors"));
  ExpectEnd(Temper({"inspect", "a"}), 1, {"was replaced", "delete a/checksums.xxh3"});
  ASSERT_TRUE(PosixEnv().RemoveFile(Path("a/checksums.xxh3")).ok());
  EXPECT_EQ(Temper({"inspect", "a"}).code, 0);
}

}  // namespace
}  // namespace temper::program::damaged_weights_test
