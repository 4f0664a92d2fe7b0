// Stopping and resuming: `temper train` stopped by any signal
// and resumed ends with the bytes of a run that never stopped.
#include "temper_program.h"

namespace temper::program::resume_test {
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
    Arguments run = Train({"--max_steps", "50", "--max_seq_len", "48", "--eval_data", "e.jsonl", "--save_steps", "12"});
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
  StoppedEndsAsWhole({"--method", "full", "--learning_rate", "1e-3", "--save_total_limit", "2", "--neftune_noise_alpha",
                      "5", "--label_smoothing_factor", "0.1"},
                     "step 13/50", {{SIGINT, 130}});
}

TEST_F(Resume, WithValuesInEveryTierStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--learning_rate", "1e-3", "--save_total_limit", "2", "--memory.weights",
                      "host", "--memory.gradients", "host", "--memory.optimizer", "disk", "--memory.disk", "spill"},
                     "step 13/50", {{SIGTERM, 75}});
}

TEST_F(Resume, LionStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--optimizer", "lion", "--learning_rate", "1e-4", "--weight_decay", "0.1"},
                     "step 13/50", {{SIGTERM, 75}});
}

// Both with AdamW for some values, one with bytes among its states. A kill before step 24 may find no whole checkpoint.
TEST_F(Resume, Adamw8bitStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--optimizer", "adamw_8bit", "--learning_rate", "1e-3", "--memory.optimizer",
                      "disk", "--memory.disk", "spill"},
                     "step 25/50", {{SIGTERM, 75}, {SIGKILL, -SIGKILL}});
}

TEST_F(Resume, MuonStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--optimizer", "muon", "--learning_rate", "1e-3", "--weight_decay", "0.1"},
                     "step 13/50", {{SIGTERM, 75}});
}

TEST_F(Resume, WithoutMastersStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole(
      {"--method", "full", "--dtype", "bf16", "--stochastic_rounding", "true", "--learning_rate", "1e-4"}, "step 13/50",
      {{SIGTERM, 75}});
}

TEST_F(Resume, AdafactorStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole(
      {"--method", "full", "--optimizer", "adafactor", "--learning_rate", "1e-3", "--weight_decay", "0.1"},
      "step 13/50", {{SIGTERM, 75}});
}

// Evaluations exchange weights and averages, also of bf16 weights and while a checkpoint is written.
TEST_F(Resume, WithAnAverageThatIsEvaluatedStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--dtype", "bf16", "--ema_decay", "0.9", "--ema_eval", "true", "--eval_steps", "4"}, "step 25/50",
                     {{SIGTERM, 75}});
}

TEST_F(Resume, SgdStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--optimizer", "sgd", "--learning_rate", "0.1", "--memory.optimizer", "disk",
                      "--memory.disk", "spill"},
                     "step 13/50", {{SIGTERM, 75}});
}

TEST_F(Resume, WithinALimitStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--method", "full", "--learning_rate", "1e-3", "--memory.device", "8MiB"}, "step 13/50",
                     {{SIGTERM, 75}});
}

TEST_F(Resume, LoraOnWeightsThatStayOnTheDiskStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--memory.weights", "disk", "--memory.tiers", "host"}, "step 13/50", {{SIGTERM, 75}});
}

// The base is quantised anew, with the same result.
TEST_F(Resume, LoraOnAQuantisedBaseStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--dtype", "bf16", "--base_dtype", "nf4", "--embedding_dtype", "int8"}, "step 13/50",
                     {{SIGTERM, 75}});
}

// A step may take minutes, in which nothing else shows that the signal arrived.
// Epochs of 15 steps; the signal comes in the step after an evaluation.
TEST_F(Resume, WithEvaluationsAndCheckpointsOfEpochsStoppedEndsWithTheSameBytes) {
  StoppedEndsAsWhole({"--packing", "false", "--gradient_accumulation_steps", "4", "--save_strategy", "epoch",
                      "--max_steps", "32", "--logging_steps", "0.1", "--load_best_model_at_end", "true"},
                     "step 16/32", {{SIGTERM, 75}});
}

// goldens/first_format: the checkpoint of step 2 that commit c80fc0e0, from before graphs had names, wrote with these
// options (model `m`: the example's). Its steps 3 and 4 had the losses below. Kernels of another processor round f32
// sums otherwise: 1e-4 is some hundred times that.
TEST_F(Resume, ACheckpointOfTheFirstFormatGoesOnAsItWould) {
  const std::string from = std::string(kProjectFolder) + "/tests/command_line/goldens/first_format/checkpoint-2";
  const std::string to = Path("out/checkpoint-2");
  ASSERT_TRUE(PosixEnv().CreateFolders(to).ok());
  for (const std::string& file : Must(PosixEnv().List(from))) {
    temper::Spill(JoinPath(to, file), temper::Slurp(JoinPath(from, file)));
  }
  CopyModel("m");
  const Ended resumed =
      Temper(With(Train({"--model", "m", "--max_seq_len", "48", "--dtype", "f32"}),
                  {"--lora.r", "1", "--lora.target_modules", "q_proj", "--save_steps", "2", "--resume"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("resume      from out/checkpoint-2"), std::string::npos) << resumed.err;
  std::map<int64_t, double> losses = Losses(Path("out"));
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_NEAR(losses[3], 7.3484375286870245, 1e-4);
  EXPECT_NEAR(losses[4], 5.276477924108085, 1e-4);
}

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
  ExpectEnd(Temper(Train({"--seed", "7", "--lora.r", "4", "--max_seq_len", "64", "--max_steps", "9", "--resume"})), 2,
            {"trained with other settings: max_seq_len 96 (now 64), lora.r 16 (now 4), seed 42 (now 7). Resume",
             "--model out/checkpoint-4"});
  ExpectEnd(Temper(Train({"--max_steps", "3", "--resume"})), 2, {"max_steps 3 is less than the 4 steps"});
  Spill("d.jsonl", FirstLines(kExample + "/chef_train.jsonl", 60));
  ExpectEnd(Temper(Train({"--resume"})), 2, {"out/checkpoint-4", "d.jsonl has changed", "Restore it"});
  EXPECT_TRUE(Slurp("out/adapter_model.safetensors") == result) << "a refused run has lost the result";
}

// A state of the optimizer that the checkpoint does not have.
TEST_F(Resume, WithASettingThatNeedsAnotherStateIsRefusedByName) {
  const Arguments run = Train({"--optimizer", "sgd", "--sgd_momentum", "0"});
  ASSERT_EQ(Temper(run).code, 0);
  ExpectEnd(Temper(Train({"--optimizer", "sgd", "--sgd_momentum", "0.9", "--max_steps", "5", "--resume"})), 2,
            {"sgd_momentum 0 (now 0.9)"});
}

// A finished run, with another length, learning rate and schedule, equals a single run whose schedule has both parts: a
// warmup_stable_decay that stays at 1e-3 for 6 steps and falls to half of it at once.
TEST_F(Resume, TrainsOnExactlyAsARunWithBothSchedules) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    SCOPED_TRACE(optimizer);
    const auto run = [&](const std::string& out, const Arguments& more) {
      return With(Train({"--optimizer", optimizer, "--learning_rate", "1e-3", "--output_dir", out}), more);
    };
    const Ended single = Temper(run(
        "single-" + optimizer,
        {"--max_steps", "12", "--lr_scheduler_type", "warmup_stable_decay", "--lr_scheduler_kwargs.num_stable_steps",
         "6", "--lr_scheduler_kwargs.num_decay_steps", "0", "--lr_scheduler_kwargs.min_lr_ratio", "0.5"}));
    ASSERT_EQ(single.code, 0) << single.err;
    const Arguments constant = {"--lr_scheduler_type", "constant"};
    ASSERT_EQ(Temper(With(run(optimizer, constant), {"--max_steps", "6"})).code, 0);
    const Ended on =
        Temper(With(run(optimizer, constant), {"--max_steps", "12", "--learning_rate", "5e-4", "--resume"}));
    ExpectEnd(
        on, 0,
        {"changed     max_steps 6 -> 12\n", "changed     learning_rate 0.001 -> 0.0005\n",
         "a run of 12 steps with these settings: learning rate 0.0005 in step 7 (the old one ended with step 6)"});
    EXPECT_EQ(on.err.find("another environment"), std::string::npos) << on.err;
    const std::string weights = "/adapter_model.safetensors";
    EXPECT_TRUE(Slurp("single-" + optimizer + weights) == Slurp(optimizer + weights));
    EXPECT_FALSE(Slurp(optimizer + "/checkpoint-6" + weights) == Slurp(optimizer + weights));
    EXPECT_EQ(Losses(Path("single-" + optimizer)), Losses(Path(optimizer)));
  }
}

// Stopped between, it ends in the same bytes.
TEST_F(Resume, ARunThatWasTrainedOnResumesExactly) {
  const Arguments first = Train({"--max_steps", "6", "--lora.dropout", "0.1"});
  const Arguments on = With(first, {"--max_steps", "30", "--learning_rate", "1e-3", "--gradient_accumulation_steps",
                                    "2", "--adam_beta2", "0.95", "--save_steps", "2", "--resume"});
  std::string folders[] = {Folder("whole"), Folder("stopped")};
  for (const std::string& folder : folders) ASSERT_EQ(RunTemper(first, folder).code, 0);
  ASSERT_EQ(RunTemper(on, folders[0]).code, 0);
  Process stopped(Command(on), folders[1]);
  ASSERT_TRUE(stopped.ReadErrUntil("step 11/30"));
  stopped.Signal(SIGTERM);
  ASSERT_EQ(stopped.Wait().code, 75);
  const Ended again = RunTemper(on, folders[1]);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err.find("changed"), std::string::npos) << again.err;
  ExpectSame(folders[0] + "/out", folders[1] + "/out");
}

// By the tokens seen after each step.
TEST_F(Resume, ALargerBatchGoesOnAtTheNextRow) {
  const auto run = [&](const std::string& out, const std::string& accumulation, const Arguments& more) {
    return With(Train({"--num_train_epochs", "2", "--max_steps", "-1", "--output_dir", out,
                       "--gradient_accumulation_steps", accumulation}),
                more);
  };
  ASSERT_EQ(Temper(run("small", "6", {})).code, 0);
  ASSERT_EQ(Temper(run("on", "6", {"--max_steps", "3"})).code, 0);
  ExpectEnd(Temper(run("on", "12", {"--resume"})), 0, {"a step has 12 rows, not 6; the next row is 19 of"});
  const auto tokens_of = [&](const std::string& out) {
    std::vector<int64_t> tokens;
    std::ifstream in(Path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(in, line);) tokens.push_back(Json::parse(line)["tokens"].get<int64_t>());
    return tokens;
  };
  const auto small = tokens_of("small"), on = tokens_of("on");
  EXPECT_LT(on.size(), small.size());
  EXPECT_EQ(on.back(), small.back());
  for (const int64_t tokens : on) EXPECT_TRUE(std::count(small.begin(), small.end(), tokens)) << tokens;
}

// With a learning rate of 0 no evaluation is lower than the first, at step 2.
TEST_F(Resume, EarlyStoppingCountsOn) {
  const auto run = [&](const Arguments& more) {
    return Temper(With(Train({"--learning_rate", "0", "--eval_data", "e.jsonl", "--eval_steps", "2", "--save_steps",
                              "2", "--load_best_model_at_end", "true", "--max_steps", "50"}),
                       more));
  };
  const std::string ended = "early stop  after step 8: 3 evaluations in a row did not lower eval_loss by more than 0";
  ExpectEnd(run({"--early_stopping_patience", "3", "--output_dir", "whole"}), 0, {ended, "done        8 steps"});
  ExpectEnd(run({"--early_stopping_patience", "3", "--max_steps", "6"}), 0, {"done        6 steps"});
  ExpectEnd(run({"--early_stopping_patience", "3", "--resume"}), 0, {"step 7/50", ended, "done        8 steps"});
  const Ended again = run({"--early_stopping_patience", "3", "--resume"});
  ExpectEnd(again, 0,
            {ended, "best        eval_loss", "done        already, at step 8: nothing was left to train",
             "early_stopping_patience"});
  EXPECT_EQ(again.err.find("done        8 steps"), std::string::npos) << again.err;
  EXPECT_EQ(again.err.find("step 9/50"), std::string::npos) << again.err;
  ExpectEnd(run({"--early_stopping_patience", "4", "--resume"}), 0,
            {"changed     early_stopping_patience 3 -> 4", "early stop  after step 10"});
}

// Losses of other rows cannot be compared. As above, evaluations after the first give no gain.
TEST_F(Resume, OnOtherEvaluationRowsTheBestAndEarlyStoppingStartAnew) {
  const auto run = [&](const Arguments& more) {
    return Temper(With(Train({"--learning_rate", "0", "--eval_data", "e.jsonl", "--eval_steps", "2", "--save_steps",
                              "2", "--early_stopping_patience", "3", "--max_steps", "50"}),
                       more));
  };
  const std::string anew = "start anew: it was measured ";
  ExpectEnd(run({"--max_steps", "6"}), 0, {"done        6 steps"});
  Spill("moved.jsonl", Slurp("e.jsonl"));
  const Ended moved = run({"--eval_data", "moved.jsonl", "--max_steps", "6", "--resume"});
  EXPECT_EQ(moved.code, 0) << moved.err;
  EXPECT_EQ(moved.err.find("changed"), std::string::npos) << moved.err;
  Spill("f.jsonl", FirstLines(kExample + "/chef_train.jsonl", 6));
  // The evaluation at step 6 is repeated: it is the first of three more.
  ExpectEnd(run({"--eval_data", "f.jsonl", "--resume"}), 0,
            {"at step 2, and the count of early_stopping_patience " + anew + "on other data", "step 6  eval_loss",
             "early stop  after step 12", "at step 6\n"});
  ExpectEnd(run({"--eval_data", "f.jsonl", "--label_smoothing_factor", "0.1", "--resume"}), 0,
            {anew + "with label_smoothing_factor 0\n", "early stop  after step 18"});
}

// Losses since the last row of metrics.jsonl come into one more.
TEST_F(Resume, AnEarlyStopLogsTheLastSteps) {
  const Arguments run = Train({"--learning_rate", "0", "--eval_data", "e.jsonl", "--eval_steps", "2",
                               "--early_stopping_patience", "1", "--max_steps", "50", "--logging_steps", "3"});
  ExpectEnd(Temper(run), 0, {"early stop  after step 4"});
  const auto losses = Losses(Path("out"));
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses.rbegin()->first, 4);
  EXPECT_EQ(Slurp("out/checkpoint-4/manifest.json").find("unlogged"), std::string::npos);
}

// Recomputation is another Program, which a setting of logging does not explain.
TEST_F(Resume, WarnsOfAnotherProgramUnlessASettingChangedIt) {
  ASSERT_EQ(Temper(Train({})).code, 0);
  const auto run = [&](const std::string& out, const Arguments& more) {
    return Temper(With(Train({"--resume=out/checkpoint-4", "--memory.recompute", "block", "--output_dir", out}), more));
  };
  const std::string warning = "another environment (program ";
  ExpectEnd(run("logging", {"--logging_steps", "2"}), 0, {"changed     logging_steps 1 -> 2", warning});
  const Ended decay = run("decay", {"--weight_decay", "0.1"});
  ExpectEnd(decay, 0, {"changed     weight_decay 0 -> 0.1"});
  EXPECT_EQ(decay.err.find(warning), std::string::npos) << decay.err;
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

TEST_F(Resume, WithoutItsSettingsSaysWhereTheyAre) {
  ExpectEnd(Temper({"train", "--resume", "--output_dir", "out"}), 2,
            {"no model given", "temper train FOLDER/run.yaml --resume"});
}

TEST_F(Resume, WithoutACheckpointStartsFromTheBeginning) {
  ExpectEnd(Temper(Train({"--resume"})), 0, {"out has no checkpoint yet: starting from the beginning", "step 1/4"});
}

}  // namespace
}  // namespace temper::program::resume_test
