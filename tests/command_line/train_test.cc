// A run's output besides the trained model: metrics for scripts, a profile, advice.
#include <cmath>
#include <set>

#include "temper_program.h"

namespace temper::program::train_test {
namespace {

class TrainedBy : public Workplace {
 protected:
  std::vector<Json> Metrics() const {
    std::vector<Json> rows;
    std::ifstream in(Path("out/metrics.jsonl"));
    for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line));
    return rows;
  }
};

TEST_F(TrainedBy, AFileAndItsOverridesLeavesMetricsThatScriptsRead) {
  Spill("run.yaml", "model: " + kModel +
                        "\ndata: d.jsonl\neval_data: e.jsonl\noutput_dir: elsewhere\nmethod: lora\nlora:\n  r: 4\n"
                        "max_seq_len: 96\ngradient_accumulation_steps: 2\nmax_steps: 3\neval_steps: 2\nthreads: 1\n"
                        "tensorboard: false\n");
  const Ended ended = Temper({"train", "run.yaml", "--output_dir", "out", "--learning_rate", "1e-3"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "") << "only results go to stdout";
  EXPECT_FALSE(Has("elsewhere"));
  EXPECT_EQ(Json::parse(Slurp("out/adapter_config.json"))["r"], 4);
  int64_t steps = 0, evaluations = 0;
  for (const Json& row : Metrics()) {
    if (row.contains("eval_loss")) {
      ++evaluations;
      EXPECT_GT(row["eval_loss"].get<double>(), 0);
      continue;
    }
    EXPECT_EQ(row["step"], ++steps);
    for (const char* key : {"epoch", "loss", "grad_norm", "learning_rate", "tokens", "tokens_per_second", "mfu",
                            "device_peak_bytes", "seconds"}) {
      EXPECT_TRUE(row.contains(key) && row[key].is_number() && row[key].get<double>() >= 0) << key << " of " << row;
    }
    EXPECT_GT(row["mfu"].get<double>(), 0);
    EXPECT_LE(row["tokens"].get<int64_t>(), 2 * 96 * steps);
  }
  EXPECT_EQ(steps, 3);
  EXPECT_GE(evaluations, 1);
}

TEST_F(TrainedBy, ARunOfFewStepsGetsAWarningWithARemedy) {
  ExpectEnd(Temper(Train({})), 0, {"warning", "4 optimizer steps", "raise max_steps"});
}

TEST_F(TrainedBy, ProfileIsAChromeTraceOfItsInstructions) {
  ASSERT_EQ(Temper(Train({"--profile", "--max_steps", "2"})).code, 0);
  const Json trace = Json::parse(Slurp("out/trace.json"));
  std::set<std::string> seen;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"].get<double>(), 0);
    seen.insert(event["name"].get<std::string>());
  }
  for (const char* op : {"linear", "linear_dw", "attention", "attention_backward", "linear_cross_entropy", "adamw"}) {
    EXPECT_TRUE(seen.contains(op)) << op << " is not in trace.json";
  }
}

TEST_F(TrainedBy, EpochsEndARunWithoutMaxSteps) {
  Spill("d.jsonl", FirstLines(kExample + "/pirate_train.jsonl", 8));
  const Ended ended = Temper({"train", "--model", kModel, "--data", "d.jsonl", "--output_dir", "out", "--threads", "1",
                              "--packing", "false", "--max_seq_len", "96", "--gradient_accumulation_steps", "4",
                              "--num_train_epochs", "2", "--tensorboard", "false"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::vector<Json> rows = Metrics();
  ASSERT_EQ(rows.size(), 4u);  // two steps of four rows each pass
  EXPECT_EQ(rows[1]["epoch"], 1.0);
  EXPECT_EQ(rows[3]["epoch"], 2.0);
}

// Two passes of two steps, and a half.
TEST_F(TrainedBy, EpochsAndPartsOfTheRunSayWhenToEvaluateSaveAndLog) {
  Spill("d.jsonl", FirstLines(kExample + "/pirate_train.jsonl", 8));
  const Arguments run =
      Train({"--packing", "false", "--gradient_accumulation_steps", "4", "--num_train_epochs", "2.5", "--max_steps",
             "-1", "--eval_data", "e.jsonl", "--save_strategy", "epoch", "--load_best_model_at_end", "true"});
  const auto steps_of = [&](const char* key) {
    std::vector<int64_t> steps;
    for (const Json& row : Metrics()) {
      if (row.contains(key)) steps.push_back(row["step"]);
    }
    return steps;
  };
  ASSERT_EQ(Temper(run).code, 0);
  EXPECT_EQ(steps_of("eval_loss"), (std::vector<int64_t>{2, 4, 5}));
  for (int step : {2, 4, 5}) EXPECT_TRUE(Has(fmt::format("out/checkpoint-{}", step))) << step;
  EXPECT_FALSE(Has("out/checkpoint-3"));
  // 0.3 of five steps is two, 0.5 three.
  ASSERT_EQ(
      Temper(With(run, {"--save_strategy", "steps", "--save_steps", "0.3", "--logging_steps", "0.5", "--overwrite"}))
          .code,
      0);
  EXPECT_EQ(steps_of("eval_loss"), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_EQ(steps_of("loss"), (std::vector<int64_t>{3, 5}));
  EXPECT_FALSE(Has("out/checkpoint-3"));
  ExpectEnd(
      Temper(With(run, {"--save_strategy", "steps", "--save_steps", "0.5", "--eval_steps", "0.3", "--overwrite"})), 2,
      {"save_steps 0.5 comes every 3 and eval_steps 0.3 every 2"});
  ASSERT_EQ(Temper(With(run, {"--save_strategy", "no", "--eval_strategy", "no", "--load_best_model_at_end", "false",
                              "--overwrite"}))
                .code,
            0);
  EXPECT_TRUE(steps_of("eval_loss").empty());
  EXPECT_FALSE(Has("out/checkpoint-4"));
  EXPECT_TRUE(Has("out/checkpoint-5"));
}

// Needs no weights; the evaluation on the text itself shows that the model learns it.
TEST_F(TrainedBy, PlainTextTrainsAModelFromScratch) {
  ASSERT_TRUE(PosixEnv().RemoveFile(CopyModel("bare") + "/model.safetensors").ok());
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The cat sleeps. The dog barks. ";
  Spill("t.txt", text);
  const Ended ended =
      Temper(Train({"--model", "bare", "--data", "t.txt", "--from_scratch", "--method", "full", "--learning_rate",
                    "3e-3", "--max_steps", "30", "--lr_scheduler_type", "constant"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::vector<Json> rows = Metrics();
  const double vocabulary = Json::parse(Slurp("bare/config.json"))["vocab_size"].get<double>();
  EXPECT_NEAR(rows.front()["loss"].get<double>(), std::log(vocabulary), 1.0) << "it was not untrained";
  EXPECT_LT(rows.back()["loss"].get<double>(), 0.5 * rows.front()["loss"].get<double>());
  EXPECT_EQ(Temper({"inspect", "out"}).code, 0);
}

}  // namespace
}  // namespace temper::program::train_test
