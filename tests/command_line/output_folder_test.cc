// A run's effect on its output folder: no existing file is lost by accident.
#include <cmath>
#include <set>

#include "format/model_weights.h"
#include "temper_program.h"

namespace temper::program::output_folder_test {
namespace {

using OutputFolder = Workplace;

TEST_F(OutputFolder, WithARunInItIsRefusedWithoutResumeOrOverwrite) {
  ASSERT_EQ(Temper(Train({})).code, 0);
  const std::string metrics = Slurp("out/metrics.jsonl");
  ExpectEnd(Temper(Train({})), 2, {"out holds an earlier run", "--resume", "--overwrite", "--output_dir"});
  EXPECT_EQ(Slurp("out/metrics.jsonl"), metrics);
  Spill("out/notes.txt", "mine");
  Spill("out/checkpoint-notes", "mine too");
  ASSERT_EQ(Temper(Train({"--max_steps", "2", "--overwrite"})).code, 0);
  EXPECT_FALSE(Has("out/checkpoint-4"));
  EXPECT_TRUE(Has("out/checkpoint-2"));
  EXPECT_EQ(Slurp("out/notes.txt"), "mine") << "not a file of the run";
  EXPECT_EQ(Slurp("out/checkpoint-notes"), "mine too") << "not a file of the run";
}

// Files from recipes of other tools have overwrite, and whoever runs them again adds --resume.
TEST_F(OutputFolder, TheCommandLineDecidesBetweenResumeAndOverwrite) {
  ASSERT_EQ(Temper(Train({"--max_steps", "2"})).code, 0);
  Spill("over.yaml", "overwrite: true\n");
  Spill("resume.yaml", "resume: true\n");
  const auto train = [&](const Arguments& more) {
    Arguments arguments = Train(more);
    const std::string file = arguments.back();
    arguments.pop_back();
    arguments.insert(arguments.begin() + 1, file);
    return Temper(arguments);
  };
  ExpectEnd(train({"--max_steps", "3", "--resume", "over.yaml"}), 0,
            {"overwrite of over.yaml does not count: --resume is given", "out/checkpoint-2 at step 2"});
  EXPECT_TRUE(Has("out/checkpoint-2"));
  ExpectEnd(train({"--max_steps", "3", "--overwrite", "resume.yaml"}), 0,
            {"resume of resume.yaml does not count: --overwrite is given", "overwrite   deletes the run of 20",
             "in out (2 checkpoints)"});
  EXPECT_FALSE(Has("out/checkpoint-2"));
  ExpectEnd(Temper(Train({"--resume", "--overwrite"})), 2, {"--no-overwrite"});
}

TEST_F(OutputFolder, RunYamlRepeatsTheRunFromAnyFolder) {
  ASSERT_EQ(Temper(Train({})).code, 0) << "with d.jsonl, by a relative path";
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("elsewhere")).ok());
  const Ended again = RunTemper({"train", Path("out/run.yaml"), "--output_dir", "again"}, Path("elsewhere"));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(Slurp("elsewhere/again/adapter_model.safetensors") == Slurp("out/adapter_model.safetensors"));
}

// As transformers: a model of bf16 stays one. The checkpoint has the f32 masters.
TEST_F(OutputFolder, HoldsTheWeightsOfAFullRunInTheTypeThatConfigJsonSays) {
  ASSERT_EQ(Temper(Train({"--method", "full"})).code, 0);
  const auto types = [&](const std::string& file) {
    std::set<DType> of;
    const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), Path(file)));
    for (const auto& entry : weights.entries()) of.insert(Must(entry.tensor->type()).dtype);
    return of;
  };
  EXPECT_EQ(types("out/checkpoint-4/model.safetensors"), std::set{DType::kF32});
  EXPECT_EQ(types("out/model.safetensors"), std::set{DType::kBF16});
  ASSERT_EQ(Temper({"export", "out/checkpoint-4", "--output_dir", "exported"}).code, 0);
  EXPECT_TRUE(Slurp("exported/model.safetensors") == Slurp("out/model.safetensors")) << "an export says the same";
}

// Files to be replaced are removed only when the new run is ready to begin.
TEST_F(OutputFolder, OverwriteLosesNothingIfTheNewRunCannotBegin) {
  ASSERT_EQ(Temper(Train({})).code, 0);
  const std::string adapter = Slurp("out/adapter_model.safetensors");
  Spill("broken.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \n");
  for (const Arguments& wrong : {Arguments{"--data", "missing.jsonl"},
                                 {"--data", "broken.jsonl"},
                                 {"--model", "missing"},
                                 {"--lora.r", "0"},
                                 {"--lora.target_modules", "nothing"},
                                 {"--eval_data", "missing.jsonl"}}) {
    Arguments run = Train({"--overwrite"});
    run = With(run, wrong);
    const Ended ended = Temper(run);
    EXPECT_NE(ended.code, 0);
    EXPECT_TRUE(Has("out/checkpoint-4/manifest.json")) << wrong[0] << " " << wrong[1];
    EXPECT_TRUE(Slurp("out/adapter_model.safetensors") == adapter) << wrong[0] << " " << wrong[1];
  }
}

TEST_F(OutputFolder, OverwriteDeletesNoModelFromOutside) {
  const std::string model = CopyModel("precious");
  ExpectEnd(Temper(Train({"--output_dir", "precious", "--overwrite"})), 2,
            {"precious holds model.safetensors, which is not from a run of Temper"});
  EXPECT_TRUE(Has("precious/model.safetensors"));
  // Nor files that the run itself reads, under any name.
  ASSERT_EQ(Temper(Train({})).code, 0);
  ASSERT_EQ(symlink("out", Path("link").c_str()), 0);
  ExpectEnd(Temper(Train({"--model", "link", "--overwrite"})), 2, {"overwrite would delete the model of this run"});
  EXPECT_TRUE(Has("out/adapter_model.safetensors"));
}

TEST_F(OutputFolder, KeepsASettingsFileThatItsUserWroteThere) {
  const std::string settings = "model: " + kModel + "\ndata: d.jsonl\nmax_seq_len: 96\nmax_steps: 1\nthreads: 1\n";
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("mine")).ok());
  Spill("mine/run.yaml", settings);
  for (const char* how : {"--overwrite", "--resume"}) {
    ExpectEnd(Temper({"train", "mine/run.yaml", "--output_dir", "mine", how}), 2,
              {"mine/run.yaml is in output_dir (mine)", "rename it"});
  }
  EXPECT_EQ(Slurp("mine/run.yaml"), settings);
  // A run's own settings file may be overwritten: it is used to resume.
  ASSERT_EQ(Temper(Train({})).code, 0);
  EXPECT_EQ(Temper({"train", "out/run.yaml", "--output_dir", "out", "--resume"}).code, 0);
  EXPECT_EQ(Temper({"train", "out/run.yaml", "--output_dir", "out", "--overwrite"}).code, 0);
}

TEST_F(OutputFolder, IsLockedByOneProcess) {
  Process first(Command(Train({"--max_steps", "80"})), folder());
  ASSERT_TRUE(first.ReadErrUntil("train step 2/80"));
  ExpectEnd(Temper(Train({"--max_steps", "80", "--overwrite"})), 69, {"another process is training into out"});
  // One that is ending is waited for.
  Process next(Command(Train({"--max_steps", "80", "--resume"})), folder());
  ASSERT_TRUE(next.ReadErrUntil("waiting     another process has out"));
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait().code, 75);
  EXPECT_EQ(next.Wait().code, 0);
  EXPECT_EQ(Temper(Train({"--max_steps", "80", "--resume"})).code, 0) << "free again";
}

TEST_F(OutputFolder, KeepsTheNewestAndTheBestCheckpoints) {
  // Each step towards the pirate's words moves away from the model's original ones.
  Spill("plain.jsonl", FirstLines(kExample + "/base_eval.jsonl", 6));
  const Ended ended = Temper(Train({"--eval_data", "plain.jsonl", "--learning_rate", "5e-3", "--max_steps", "6",
                                    "--save_steps", "1", "--save_total_limit", "2"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::vector<std::string> kept;
  for (const std::string& name : Must(PosixEnv().List(Path("out")))) {
    if (name.starts_with("checkpoint-")) kept.push_back(name);
  }
  double best = INFINITY;
  std::string best_name;
  std::ifstream in(Path("out/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const Json row = Json::parse(line);
    if (!row.contains("eval_loss") || row["eval_loss"].get<double>() >= best) continue;
    best = row["eval_loss"].get<double>();
    best_name = fmt::format("checkpoint-{}", row["step"].get<int64_t>());
  }
  EXPECT_LT(best_name, "checkpoint-5") << "the model got better: the test shows nothing";
  EXPECT_EQ(kept, (std::vector<std::string>{best_name, "checkpoint-5", "checkpoint-6"}));
}

TEST_F(OutputFolder, UnwritableIsReportedBeforeDataIsRead) {
  Spill("file", "");
  const Ended ended = Temper(Train({"--output_dir", "file/out"}));
  ExpectEnd(ended, 1, {"the output folder file/out cannot be used", "Not a directory"});
  EXPECT_EQ(ended.err.find("data        "), std::string::npos) << "the data was read first:\n" << ended.err;
}

TEST_F(OutputFolder, AFailedStartLeavesNoNewFiles) {
  Spill("broken.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \n");
  for (const char* made : {"mine", "empty"}) ASSERT_TRUE(PosixEnv().CreateFolders(Path(made)).ok());
  Spill("mine/notes.txt", "mine");
  const auto before = Must(PosixEnv().List(folder()));
  for (const Arguments& wrong : {Arguments{"--data", "broken.jsonl"}, {"--lora.target_modules", "nothing"}}) {
    for (const char* out : {"new/inner", "new/inner/", "empty", "mine"}) {
      Arguments run = Train({"--output_dir", out});
      run = With(run, wrong);
      EXPECT_NE(Temper(run).code, 0);
      EXPECT_EQ(Must(PosixEnv().List(folder())), before) << out << " " << wrong[0];
    }
  }
  EXPECT_TRUE(Must(PosixEnv().List(Path("empty"))).empty());
  EXPECT_EQ(Must(PosixEnv().List(Path("mine"))), std::vector<std::string>{"notes.txt"});
  EXPECT_EQ(Temper(Train({"--output_dir", "new/inner", "--max_steps", "1"})).code, 0);
}

// A separate disk in a separate namespace: if the system does not allow one, the test reports it.
class SmallDisk : public Workplace {
 protected:
  // Runs the shell script with an empty tmpfs of `mebibytes` at ./disk.
  Ended OnDisk(int mebibytes, const std::string& script) {
    TEMPER_CHECK(PosixEnv().CreateFolders(Path("disk")).ok());
    return Process({"unshare", "--map-root-user", "--mount", "sh", "-c",
                    fmt::format("mount -t tmpfs -o size={}m tmpfs disk || exit 99\n{}", mebibytes, script)},
                   folder())
        .Wait();
  }
  // The system does not allow it: no program unshare, or no permission to make a namespace or to mount.
  static bool NoDisk(const Ended& ended) {
    return ended.code == 99 || ended.code == 126 || ended.err.starts_with("unshare:");
  }
  static std::string Shell(const Arguments& arguments) {
    std::string line;
    for (const std::string& word : Command(arguments)) line += "'" + word + "' ";
    return line;
  }
};

TEST_F(SmallDisk, TooSmallIsReportedBeforeDataIsRead) {
  const Ended ended = OnDisk(2, Shell(Train({"--output_dir", "disk/out"})));
  if (NoDisk(ended)) GTEST_SKIP() << "no disk of its own to be had here: " << ended.err;
  ExpectEnd(ended, 1, {"before training", "disk/out needs", "Free some space or choose another folder"});
  EXPECT_EQ(ended.err.find("data        "), std::string::npos) << ended.err;
}

TEST_F(SmallDisk, AnExportThatDoesNotFitKeepsThePreviousOne) {
  const std::string run = Shell({"export", "--model", kModel, "--output_dir", "disk/out", "--overwrite"});
  const Ended ended = OnDisk(64, run + "&& head -c 58M /dev/zero > disk/fill\n" + run + "; echo exit code $?\n" +
                                     Shell({"inspect", "disk/out"}) + "> /dev/null && echo valid");
  if (NoDisk(ended)) GTEST_SKIP() << "no disk of its own to be had here: " << ended.err;
  EXPECT_NE(ended.err.find("disk/out needs"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.out, "exit code 1\nvalid\n") << ended.err;
}

TEST_F(SmallDisk, FillingUpKeepsThePreviousCheckpoint) {
  const std::string run = Shell(Train({"--output_dir", "disk/out", "--max_steps", "2000", "--save_steps", "20"}));
  const std::string generate =
      Shell({"generate", "--model", "disk/out", "--prompt", "Why", "--threads", "1", "--max_new_tokens", "1"});
  const Ended ended = OnDisk(64, run + R"sh( & pid=$!
    while [ ! -e disk/out/checkpoint-20 ]; do sleep 0.01; kill -0 $pid || exit 98; done
    head -c 64M /dev/zero > disk/fill
    wait $pid; echo "exit code $?"
    for c in disk/out/checkpoint-*; do )sh" +
                                     Shell({"inspect"}) +
                                     R"sh( $c > /dev/null && echo "valid ${c##*/}"; done
    rm disk/fill
    )sh" + generate + "> /dev/null && echo usable");
  if (NoDisk(ended)) GTEST_SKIP() << "no disk of its own to be had here: " << ended.err;
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("exit code 1"), std::string::npos) << ended.out << ended.err;
  EXPECT_NE(ended.out.find("valid checkpoint-20"), std::string::npos) << ended.out << ended.err;
  EXPECT_NE(ended.out.find("usable"), std::string::npos) << ended.out << ended.err;
  // Metrics or a save, whichever hits the full disk first.
  EXPECT_TRUE(ended.err.find("could not be saved; earlier checkpoints are untouched") != std::string::npos ||
              ended.err.find("No space left on device. Free some space") != std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace temper::program::output_folder_test
