// Preferences (task dpo): `temper train` on pairs of answers.
#include <fmt/ranges.h>

#include <cmath>

#include "temper_program.h"

namespace temper::program::preference_test {
namespace {

class Preference : public Workplace {
 protected:
  Preference() {
    std::string pairs;
    for (int i = 0; i < 24; ++i) {
      const std::string prompt = fmt::format(R"([{{"role": "user", "content": "What is {} plus {}?"}}])", i, 2 * i);
      const auto answer = [](const std::string& text) {
        return fmt::format(R"([{{"role": "assistant", "content": "{}"}}])", text);
      };
      pairs += fmt::format(R"({{"prompt": {}, "chosen": {}, "rejected": {}}})", prompt,
                           answer(fmt::format("It is {}.", 3 * i)),
                           answer(fmt::format("It might be {}, but who knows?", i + 7))) +
               "\n";
    }
    Spill("pairs.jsonl", pairs);
  }

  static Arguments TrainOnPairs(const Arguments& more) {
    return With(Train({"--data", "pairs.jsonl", "--task", "dpo", "--dtype", "f32", "--learning_rate", "1e-3",
                       "--max_seq_len", "128", "--gradient_accumulation_steps", "4"}),
                more);
  }
};

TEST_F(Preference, LearnsToPreferTheChosenAnswers) {
  const Ended ended = Temper(TrainOnPairs({"--max_steps", "6", "--eval_fraction", "0.25", "--tensorboard", "true"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("24 rows of pairs (chosen/rejected)"), std::string::npos) << ended.err;
  const std::vector<Json> rows = Rows(Path("out"));
  const Json &evaluation = rows.at(0), &last = rows.at(1), &first = rows.back();
  EXPECT_NEAR(first["loss"].get<double>(), std::log(2.0), 1e-3) << "the adapter changes nothing yet";
  EXPECT_LT(last["loss"].get<double>(), 0.5);
  for (const auto& [row, prefix] : {std::pair{last, ""}, {evaluation, "eval_"}}) {
    const auto value = [&, of = row](const std::string& name) { return of.at(prefix + name).get<double>(); };
    EXPECT_EQ(value("rewards/accuracies"), 1);
    EXPECT_GT(value("rewards/margins"), 0.3);
    EXPECT_NEAR(value("rewards/margins"), value("rewards/chosen") - value("rewards/rejected"), 1e-4);
  }
}

// tests/parity/make_preference_goldens.py: three steps of DPOTrainer on all pairs at once, continuing an adapter or in
// full, for each kind of loss.
TEST_F(Preference, StepsAreThoseOfTrl) {
  const std::string goldens = std::string(kProjectFolder) + "/tests/parity/goldens";
  const Json golden = Json::parse(temper::Slurp(goldens + "/preference.json"));
  std::string rows;
  for (const Json& pair : golden["pairs"]) rows += pair.dump() + "\n";
  Spill("golden.jsonl", rows);
  for (const auto& [name, wanted] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const bool full = wanted.value("full", false);
    Arguments run = TrainOnPairs({"--data", "golden.jsonl", "--max_seq_len", "512", "--gradient_accumulation_steps",
                                  "1", "--max_steps", "3", "--lr_scheduler_type", "constant", "--overwrite",
                                  "--dpo.beta", wanted["beta"].dump(), "--learning_rate", full ? "1e-4" : "3e-3"});
    if (full) run = With(run, {"--method", "full"});
    if (!full) run = With(run, {"--adapter", goldens + "/adapters/preference"});
    if (wanted.contains("loss_type")) run = With(run, {"--dpo.loss_type", wanted["loss_type"][0].get<std::string>()});
    if (wanted.contains("label_smoothing"))
      run = With(run, {"--dpo.label_smoothing", wanted["label_smoothing"].dump()});
    const Ended ended = Temper(run);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const std::vector<Json> steps = Rows(Path("out"));
    ASSERT_EQ(steps.size(), 3u);
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const auto& [report, value] : wanted["steps"][i].items()) {
        // f32 on both sides; differences of the first step grow with the weights that it makes.
        const double number = value.get<double>();
        EXPECT_NEAR(steps[2 - i][report].get<double>(), number, 2e-4 * std::max(1.0, std::fabs(number)))
            << "step " << i + 1 << " " << report;
      }
    }
  }
}

// A run that goes on has other weights than those that it is compared with.
TEST_F(Preference, AStoppedRunEndsWithTheSameBytes) {
  for (const char* method : {"full", "lora"}) {
    SCOPED_TRACE(method);
    const Arguments run = TrainOnPairs({"--method", method, "--max_steps", "8", "--save_steps", "2", "--logging_steps",
                                        "3", "--eval_fraction", "0.25", "--dpo.loss_type", "ipo", "--dpo.beta", "0.3"});
    ExpectSameIfStopped(Path(method), run, Slurp("pairs.jsonl"), "pairs.jsonl");
    const std::string stopped = Path(method) + "/stopped";
    TEMPER_CHECK(PosixEnv().RemoveFile(stopped + "/out/reference.bin").ok());
    ExpectEnd(RunTemper(With(run, {"--resume", "--max_steps", "10"}), stopped), 1,
              {"reference.bin is missing. It has what the model said of the data before the run"});
  }
}

// Micro-batches, recomputation and the ranks of a mesh see the same pairs.
TEST_F(Preference, LossesDoNotDependOnHowAStepIsComputed) {
  const auto losses = [&](const Arguments& more) {
    Arguments run = TrainOnPairs({"--overwrite"});
    run = With(run, more);
    const Ended ended = Temper(run);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Losses(Path("out"));
  };
  const auto expected = losses({});
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_LT(expected.at(4), expected.at(1) - 0.1);
  std::vector<Arguments> others = {
      {"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2", "--memory.recompute", "block"}};
  for (const char* mesh : {"fsdp=2", "pp=2"}) {
    const char* const accumulation = std::string(mesh) == "fsdp=2" ? "2" : "4";
    others.push_back({"--nprocs", "2", "--mesh", mesh, "--gradient_accumulation_steps", accumulation});
  }
  others.push_back({"--per_device_train_batch_size", "auto"});
  for (const Arguments& other : others) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(other, " ")));
    for (const auto& [step, loss] : losses(other)) EXPECT_NEAR(loss, expected.at(step), 2e-5) << step;
  }
}

// What is compared with is the model of the start: where nothing has changed yet, nothing has been won.
TEST_F(Preference, AnUnchangedModelHasNoRewards) {
  for (const Arguments& more : {Arguments{}, Arguments{"--packing", "false"}, Arguments{"--method", "full"},
                                Arguments{"--per_device_eval_batch_size", "3"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(more, " ")));
    Arguments run = TrainOnPairs({"--max_steps", "1", "--overwrite"});
    run = With(run, more);
    const Ended ended = Temper(run);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json step = Rows(Path("out")).back();
    for (const char* report : {"rewards/chosen", "rewards/rejected", "rewards/margins"}) {
      EXPECT_NEAR(step[report].get<double>(), 0, 2e-6) << report;
    }
  }
}

TEST_F(Preference, EvaluationDataOfTheirOwnAreScoredOnce) {
  Spill("other.jsonl", Slurp("pairs.jsonl").substr(0, Slurp("pairs.jsonl").find('\n') + 1));
  const Arguments run = TrainOnPairs({"--eval_data", "other.jsonl", "--max_steps", "2"});
  ASSERT_EQ(Temper(run).code, 0);
  EXPECT_TRUE(Rows(Path("out"))[0].contains("eval_rewards/margins"));
  Arguments on = With(run, {"--max_steps", "3"});
  on.push_back("--resume");
  ExpectEnd(Temper(With(on, {"--eval_data", "pairs.jsonl"})), 2,
            {"eval_data changed: out/reference.bin has what the model said of the old data before the run"});
  const Ended same = Temper(on);
  EXPECT_EQ(same.code, 0) << same.err;
  std::string damaged = Slurp("out/reference.bin");
  damaged[damaged.size() / 2] ^= 1;
  Spill("out/reference.bin", damaged);
  ExpectEnd(Temper(With(on, {"--max_steps", "4"})), 1, {"out/reference.bin is damaged", "restore it from a copy"});
}

TEST_F(Preference, RefusesWhatItHasNoUseFor) {
  ExpectEnd(Temper(TrainOnPairs({"--data", "d.jsonl"})), 1, {"d.jsonl line 1: no pair of answers. The row has "});
  ExpectEnd(Temper(Train({"--data", "pairs.jsonl"})), 1,
            {"pairs.jsonl line 1: preference data ('chosen' and 'rejected'): train on it with --task dpo or reward, or "
             "keep"});
  ExpectEnd(Temper(TrainOnPairs({"--mesh", "cp=2", "--nprocs", "2"})), 2,
            {"task: dpo has no use for mesh.cp: ranks would share rows, and a pair has to be whole on one"});
  ExpectEnd(Temper(TrainOnPairs({"--train_on_prompt"})), 2, {"task: dpo has no use for train_on_prompt"});
  ExpectEnd(Temper(Train({"--dpo.beta", "0.2"})), 2, {"dpo.* has no effect on task: sft: remove it"});
  Spill("t.txt", "A text.");
  ExpectEnd(Temper(TrainOnPairs({"--data", "t.txt"})), 1, {"t.txt: a text file has no pairs of answers"});
}

// Tensor ranks share a vocabulary, and the log-probabilities of its words.
TEST_F(Preference, TensorRanksSeeTheSamePairs) {
  const std::string model = CopyModel("drawn");
  Json config = Json::parse(temper::Slurp(model + "/config.json"));
  config.update({{"hidden_size", 64},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 16},
                 {"intermediate_size", 96},
                 {"num_hidden_layers", 2}});
  temper::Spill(model + "/config.json", config.dump());
  TEMPER_CHECK(PosixEnv().RemoveFile(model + "/model.safetensors").ok());
  const auto losses = [&](const Arguments& more) {
    Arguments run = TrainOnPairs({"--model", model, "--from_scratch", "--method", "full", "--overwrite"});
    run = With(run, more);
    const Ended ended = Temper(run);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Losses(Path("out"));
  };
  const auto expected = losses({}), got = losses({"--nprocs", "2", "--mesh", "tp=2"});
  ASSERT_EQ(got.size(), 4u);
  EXPECT_LT(expected.at(4), expected.at(1) - 0.01);
  for (const auto& [step, loss] : got) EXPECT_NEAR(loss, expected.at(step), 2e-5) << step;
}

TEST_F(Preference, PreviewShowsBothAnswers) {
  const Ended ended = Temper({"data", "preview", kModel, "--data", "pairs.jsonl", "--task", "dpo", "--samples", "1"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const size_t chosen = ended.out.find("--- chosen: "), rejected = ended.out.find("--- rejected: ");
  ASSERT_NE(chosen, std::string::npos) << ended.out;
  ASSERT_NE(rejected, std::string::npos) << ended.out;
  EXPECT_LT(ended.out.find("[[It is 0.<|end|>]]"), rejected);
  EXPECT_GT(ended.out.find("[[It might be 7, but who knows?<|end|>]]"), rejected);
}

}  // namespace
}  // namespace temper::program::preference_test
