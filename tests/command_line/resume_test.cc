// Stopping and resuming: `temper train` stopped by any signal
// and resumed ends with the bytes of a run that never stopped.
#include "temper_program.h"

namespace temper::program {
namespace {

// Checkpoints of a run, by name.
std::vector<std::string> Checkpoints(const std::string& out) {
  std::vector<std::string> names = Must(PosixEnv().List(out));
  std::erase_if(names, [](const std::string& n) { return !n.starts_with("checkpoint-"); });
  return names;
}

class Resume : public Workplace {
 protected:
  // The same relative paths in each folder, because they are saved.
  std::string Folder(const std::string& name) const {
    TEMPER_CHECK(PosixEnv().CreateFolders(Path(name)).ok());
    for (const char* file : {"d.jsonl", "e.jsonl"}) Spill(JoinPath(name, file), Slurp(file));
    return Path(name);
  }

  // `stop_at`: the output of the run at which the signal is sent.
  void StoppedEndsAsWhole(const Arguments& options, const std::string& stop_at,
                          const std::vector<std::pair<int, int>>& signals_and_codes) {
    Arguments run = Train({"--max_steps", "80", "--eval_data", "e.jsonl", "--save_steps", "12"});
    run = With(run, options);
    const std::string whole = Folder("whole");
    const Ended unstopped = RunTemper(run, whole);
    ASSERT_EQ(unstopped.code, 0) << unstopped.err;
    Arguments on = run;
    on.push_back("--resume");
    for (const auto& [number, code] : signals_and_codes) {
      SCOPED_TRACE(strsignal(number));
      const std::string stopped = Folder(fmt::format("stopped_by_{}", number));
      Process first(Command(run), stopped);
      ASSERT_TRUE(first.ReadErrUntil(stop_at));
      first.Signal(number);
      const Ended ended = first.Wait();
      EXPECT_EQ(ended.code, code) << ended.err;
      EXPECT_FALSE(PosixEnv().IsFile(stopped + "/out/adapter_config.json")) << "it was not stopped";
      if (code > 0) {
        EXPECT_NE(ended.err.find("checkpoint saved; continue with the same command and --resume"), std::string::npos);
      }
      const auto saved = Checkpoints(stopped + "/out");
      ASSERT_FALSE(saved.empty());
      const Ended resumed = RunTemper(on, stopped);
      ASSERT_EQ(resumed.code, 0) << resumed.err;
      EXPECT_NE(resumed.err.find("resume      from out/checkpoint-"), std::string::npos) << resumed.err;
      ExpectSame(whole + "/out", stopped + "/out");
    }
  }
};

// With dropout, evaluations at every step (a stop aborts one) and rows of metrics over three steps (a stop falls
// between two). The second save begins when the first has ended: after step 24 there is one, on any disk.
TEST_F(Resume, LoraStoppedByAnySignalEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--lora.dropout", "0.1", "--eval_steps", "1", "--logging_steps", "3"}, "step 25  eval_loss",
                     {{SIGTERM, 75}, {SIGKILL, -SIGKILL}});
}

TEST_F(Resume, FullStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--learning_rate", "1e-3", "--save_total_limit", "2"}, "step 13/80",
                     {{SIGINT, 130}});
}

TEST_F(Resume, WithValuesInEveryTierStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--learning_rate", "1e-3", "--save_total_limit", "2", "--memory.weights",
                      "host", "--memory.gradients", "host", "--memory.optimizer", "disk", "--memory.disk", "spill"},
                     "step 13/80", {{SIGTERM, 75}});
}

TEST_F(Resume, SgdStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--optimizer", "sgd", "--learning_rate", "0.1", "--memory.optimizer", "disk",
                      "--memory.disk", "spill"},
                     "step 13/80", {{SIGTERM, 75}});
}

TEST_F(Resume, WithinALimitStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--learning_rate", "1e-3", "--memory.device", "8MiB"}, "step 13/80",
                     {{SIGTERM, 75}});
}

TEST_F(Resume, LoraOnWeightsThatStayOnTheDiskStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--memory.weights", "disk", "--memory.placement", "host"}, "step 13/80", {{SIGTERM, 75}});
}

// The base is quantised anew, with the same result.
TEST_F(Resume, LoraOnAQuantisedBaseStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--dtype", "bf16", "--base_dtype", "nf4"}, "step 13/80", {{SIGTERM, 75}});
}

// A step may take minutes, in which nothing else shows that the signal arrived.
TEST_F(Resume, AStopReportsItsWaitAndASecondSignalTheLostWork) {
  Process run(Command(Train({"--max_steps", "3", "--gradient_accumulation_steps", "64"})), folder());
  ASSERT_TRUE(run.ReadErrUntil("train step 1/3"));
  run.Signal(SIGINT);
  ASSERT_TRUE(run.ReadErrUntil("stopping: finishing and saving the current step; a second signal"));
  run.Signal(SIGINT);
  const Ended ended = run.Wait();
  EXPECT_EQ(ended.code, 130);
  EXPECT_TRUE(ended.err.ends_with("stopped at once: progress since the last checkpoint is lost\n")) << ended.err;
  EXPECT_TRUE(Checkpoints(Path("out")).empty());
}

// A large model and its data take minutes to read, in which a
// job may be preempted: requeueing depends on the exit code.
TEST_F(Resume, AStopBeforeTheFirstStepHasTheExitCodeOfOneAfterIt) {
  const std::string rows = temper::Slurp(kExample + "/pirate_train.jsonl");
  std::string many;
  for (int i = 0; i < 100; ++i) many += rows;
  Spill("many.jsonl", many);
  for (const int number : {SIGTERM, SIGUSR1, SIGHUP, SIGINT}) {
    Process run(Command(Train({"--data", "many.jsonl"})), folder());
    ASSERT_TRUE(run.ReadErrUntil("plan  "));
    run.Signal(number);
    const Ended ended = run.Wait();
    EXPECT_EQ(ended.code, number == SIGINT ? 130 : 75) << strsignal(number) << ended.err;
    EXPECT_TRUE(
        ended.err.ends_with("stopped before the first step, with nothing to save: run the same command again\n"))
        << ended.err;
    EXPECT_FALSE(PosixEnv().IsFile(Path("out/run.yaml")));
  }
}

// Kernel and shell both send SIGHUP.
TEST_F(Resume, AClosedTerminalStopsARunAfterASave) {
  Process run(Command(Train({"--max_steps", "80", "--save_steps", "0"})), folder());
  ASSERT_TRUE(run.ReadErrUntil("train step 2/80"));
  run.Signal(SIGHUP);
  run.Signal(SIGHUP);
  EXPECT_EQ(run.Wait().code, 75);
  EXPECT_EQ(Checkpoints(Path("out")).size(), 1u);
}

TEST_F(Resume, NeedsNoWeightsOfTheModelIfTheCheckpointHasAll) {
  const std::string model = CopyModel("model");
  Arguments run = Train({"--model", model, "--method", "full", "--max_steps", "80", "--save_steps", "0"});
  Process first(Command(run), folder());
  ASSERT_TRUE(first.ReadErrUntil("train step 2/80"));
  first.Signal(SIGTERM);
  ASSERT_EQ(first.Wait().code, 75);
  ASSERT_TRUE(PosixEnv().RemoveFile(model + "/model.safetensors").ok());
  run.push_back("--resume");
  const Ended resumed = Temper(run);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

// A branch of a repository that `hf download` has moved, for one: the same shapes, other numbers.
TEST_F(Resume, OnABaseThatHasChangedIsRefusedAndSoAreItsAdapters) {
  const std::string model = CopyModel("base model");
  const Arguments run = Train({"--model", "base model", "--max_steps", "2"});
  ASSERT_EQ(Temper(run).code, 0);
  const Arguments resume = With(run, {"--resume"});
  const std::vector<Arguments> others = {{"generate", "out", "--prompt", "x", "--max_new_tokens", "1"},
                                         {"eval", "out/checkpoint-2", "--data", "e.jsonl"},
                                         {"export", "out", "--output_dir", "merged"}};
  const std::string whole = Slurp("base model/model.safetensors");
  std::string other = whole;
  for (size_t at = other.size() / 2; at < other.size(); ++at) other[at] ^= 1;
  Spill("base model/model.safetensors", other);
  ExpectEnd(Temper(resume), 2, {"base model are not those that the training began with", "out/checkpoint-2/base.json"});
  for (const Arguments& command : others) ExpectEnd(Temper(command), 2, {"base.json says", "--base FOLDER"});
  EXPECT_FALSE(Has("merged"));
  ExpectEnd(Temper(With(others[0], {"--base", "base model"})), 0, {"warning: the weights of base model are not those"});
  Spill("base model/model.safetensors", whole);
  EXPECT_EQ(Temper(resume).code, 0);
  for (const Arguments& command : others) EXPECT_EQ(Temper(command).code, 0) << command[0];
}

// It is no part of the result.
TEST_F(Resume, GoesOnWithoutATensorBoardFileThatItCannotOpen) {
  const Arguments run = Train({"--max_steps", "2", "--tensorboard", "true"});
  ASSERT_EQ(Temper(run).code, 0);
  ASSERT_TRUE(PosixEnv().RemoveTree(Path("out/runs")).ok());
  Spill("out/runs", "a file");
  ExpectEnd(Temper(With(run, {"--resume"})), 0, {"the run goes on without TensorBoard's log"});
}

TEST_F(Resume, TruncatesMetricsToTheCheckpointsStep) {
  const Arguments run = Train({"--max_steps", "5", "--save_steps", "2"});
  ASSERT_EQ(Temper(run).code, 0);
  const std::string whole = Slurp("out/metrics.jsonl");
  // As after a power failure: later checkpoints are missing, the last row is incomplete.
  ASSERT_TRUE(PosixEnv().RemoveTree(Path("out/checkpoint-5")).ok());
  ASSERT_TRUE(PosixEnv().RemoveTree(Path("out/checkpoint-4")).ok());
  Spill("out/metrics.jsonl", whole + "{\"step\": 6, \"epo");
  Arguments on = run;
  on.push_back("--resume");
  const Ended resumed = Temper(on);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  std::vector<int64_t> steps;
  std::ifstream in(Path("out/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) steps.push_back(Json::parse(line)["step"].get<int64_t>());
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  const auto first_rows = [](const std::string& text) { return text.substr(0, text.find("{\"step\": 3")); };
  EXPECT_EQ(first_rows(Slurp("out/metrics.jsonl")), first_rows(whole)) << "rows up to the checkpoint stay unchanged";
}

// A run resumed on another day keeps its original choices.
TEST_F(Resume, KeepsTheDateAndTypeThatWereChosenAtTheStart) {
  const Arguments run = Train({"--template_date", "2024-02-29", "--dtype", "f32", "--save_steps", "2"});
  ASSERT_EQ(Temper(run).code, 0);
  ASSERT_TRUE(PosixEnv().RemoveTree(Path("out/checkpoint-4")).ok());
  const Ended resumed = Temper(Train({"--save_steps", "2", "--resume"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(Slurp("out/run.yaml").find("template_date: \"2024-02-29\""), std::string::npos) << Slurp("out/run.yaml");
  EXPECT_NE(Slurp("out/run.yaml").find("dtype: f32"), std::string::npos);
}

TEST_F(Resume, WithAnotherOptimizerIsRefusedByNameBothWays) {
  for (const std::string saved : {"adamw", "sgd"}) {
    const std::string other = saved == "sgd" ? "adamw" : "sgd";
    ASSERT_EQ(Temper(Train({"--optimizer", saved, "--output_dir", saved})).code, 0);
    const Ended refused = Temper(Train({"--optimizer", other, "--output_dir", saved, "--resume"}));
    ExpectEnd(refused, 2,
              {"trained with optimizer: " + saved + ", whose states " + other + " cannot use",
               "resume with optimizer: " + saved});
  }
  EXPECT_EQ(Slurp("adamw/checkpoint-4/manifest.json").find("optimizer"), std::string::npos);
  EXPECT_NE(Slurp("sgd/checkpoint-4/manifest.json").find("\"optimizer\": \"sgd\""), std::string::npos);
  const Ended inspected = Temper({"inspect", "sgd/checkpoint-4"});
  EXPECT_NE(inspected.out.find("optimizer sgd"), std::string::npos) << inspected.out;
}

TEST_F(Resume, WithOtherSettingsOrDataIsRefusedByName) {
  ASSERT_EQ(Temper(Train({})).code, 0);
  const std::string result = Slurp("out/adapter_model.safetensors");
  ExpectEnd(Temper(Train({"--learning_rate", "1e-3", "--max_steps", "9", "--resume"})), 2,
            {"trained with other settings: max_steps 4 (now 9), learning_rate 0.0002 (now 0.001)",
             "--model out/checkpoint-4"});
  Spill("d.jsonl", FirstLines(kExample + "/chef_train.jsonl", 60));
  ExpectEnd(Temper(Train({"--resume"})), 2, {"out/checkpoint-4", "d.jsonl has changed", "Restore it"});
  EXPECT_TRUE(Slurp("out/adapter_model.safetensors") == result) << "a refused run has lost the result";
}

// Checkpoints after the named one are set aside, not deleted;
// neither rotation nor a later --resume takes one for the newest.
TEST_F(Resume, FromAnOlderCheckpointRenamesLaterOnes) {
  ASSERT_EQ(Temper(Train({"--max_steps", "6", "--save_steps", "2"})).code, 0);
  const std::string given_up = Slurp("out/checkpoint-4/manifest.json");
  const Ended resumed =
      Temper(Train({"--max_steps", "6", "--save_steps", "1", "--save_total_limit", "1", "--resume=checkpoint-2"}));
  ExpectEnd(resumed, 0, {"from out/checkpoint-2 at step 2", "out/checkpoint-4", "checkpoint-4.abandoned"});
  EXPECT_EQ(Checkpoints(Path("out")),
            (std::vector<std::string>{"checkpoint-4.abandoned", "checkpoint-6", "checkpoint-6.abandoned"}));
  EXPECT_EQ(Slurp("out/checkpoint-4.abandoned/manifest.json"), given_up);
  // From another run's folder: only into an empty one.
  ExpectEnd(Temper(Train({"--output_dir", "new", "--max_steps", "6", "--resume=out/checkpoint-6"})), 0, {"at step 6"});
  ASSERT_EQ(Temper(Train({"--output_dir", "other"})).code, 0);
  ExpectEnd(Temper(Train({"--output_dir", "other", "--max_steps", "6", "--resume=out/checkpoint-6"})), 2,
            {"other has its own checkpoints"});
  ExpectEnd(Temper(Train({"--max_steps", "6", "--resume=out/checkpoint-99"})), 1,
            {"out/checkpoint-99", "no such folder"});
}

TEST_F(Resume, WithTheCheckpointAfterASpaceExplainsTheSyntax) {
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("out/checkpoint-2")).ok());
  ExpectEnd(Temper(Train({"--resume", "out/checkpoint-2"})), 2,
            {"'out/checkpoint-2' is a folder, not a YAML file", "write --resume=out/checkpoint-2"});
}

TEST_F(Resume, WithoutACheckpointStartsFromTheBeginning) {
  ExpectEnd(Temper(Train({"--resume"})), 0, {"out has no checkpoint yet: starting from the beginning", "step 1/4"});
}

}  // namespace
}  // namespace temper::program
