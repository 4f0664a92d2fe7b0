// Preferences (tasks dpo, simpo, orpo, kto): `temper train` on pairs of answers, and on answers that are rated.
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
    std::string rated;
    for (int i = 0; i < 24; ++i) {
      const bool good = i % 3 != 1;
      rated += fmt::format(R"({{"prompt": "What is {} plus {}?", "completion": " {}", "label": {}}})", i, 2 * i,
                           good ? fmt::format("It is {}.", 3 * i) : fmt::format("It might be {}.", i + 7), good) +
               "\n";
    }
    Spill("rated.jsonl", rated);
  }

  // A method, with options that show.
  struct Method {
    const char* name;
    Arguments options;
    const char* data = "pairs.jsonl";
  };
  static std::vector<Method> Methods() {
    return {{"rpo", {"--task", "dpo", "--dpo.rpo_alpha", "0.5"}},
            {"simpo", {"--task", "simpo", "--simpo.beta", "2", "--simpo.cpo_alpha", "0.1"}},
            {"orpo", {"--task", "orpo", "--orpo.beta", "0.3"}},
            {"kto", {"--task", "kto", "--kto.beta", "0.3"}, "rated.jsonl"}};
  }
  static Arguments TrainBy(const Method& method, const Arguments& more) {
    return With(With(With(TrainOnPairs({}), {"--data", method.data}), method.options), more);
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

// tests/parity/make_preference_goldens.py: 20 steps of the trainers of the other methods on all samples at once,
// continuing an adapter or in full.
TEST_F(Preference, TwentyStepsOfEachMethodAreThoseOfTrl) {
  const std::string goldens = std::string(kProjectFolder) + "/tests/parity/goldens";
  const Json golden = Json::parse(temper::Slurp(goldens + "/preference_methods.json"));
  for (const char* kind : {"pairs", "rated"}) {
    std::string rows;
    for (const Json& row : golden[kind]) rows += row.dump() + "\n";
    Spill(fmt::format("golden_{}.jsonl", kind), rows);
  }
  for (const auto& [name, wanted] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const std::string task = wanted["task"].get<std::string>();
    Arguments run = TrainOnPairs({"--task", task, "--data", task == "kto" ? "golden_rated.jsonl" : "golden_pairs.jsonl",
                                  "--max_seq_len", "512", "--gradient_accumulation_steps", "1", "--max_steps", "20",
                                  "--lr_scheduler_type", "constant", "--overwrite", "--learning_rate",
                                  wanted["learning_rate"].dump(), "--per_device_train_batch_size", "2"});
    run = wanted["full"].get<bool>() ? With(run, {"--method", "full"})
                                     : With(run, {"--adapter", goldens + "/adapters/preference"});
    for (const auto& [option, value] : wanted["temper"].items()) run = With(run, {"--" + option, value.dump()});
    const Ended ended = Temper(run);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const std::vector<Json> steps = Rows(Path("out"));
    ASSERT_EQ(steps.size(), 20u);
    for (const auto& [report, values] : wanted["steps"].items()) {
      for (size_t i = 0; i < steps.size(); ++i) {
        const double number = values[i].get<double>();
        EXPECT_NEAR(steps[19 - i][report].get<double>(), number, 1e-4 * std::max(1.0, std::fabs(number)))
            << "step " << i + 1 << " " << report;
      }
    }
  }
}

// Micro-batches, packing, recomputation and the ranks of a mesh see the same samples, and the same means over a step.
TEST_F(Preference, LossesOfNoMethodDependOnHowAStepIsComputed) {
  for (const Method& method : Methods()) {
    const auto losses = [&](const Arguments& more) {
      const Ended ended = Temper(TrainBy(method, With({"--overwrite", "--max_steps", "3"}, more)));
      EXPECT_EQ(ended.code, 0) << ended.err;
      return Losses(Path("out"));
    };
    const auto expected = losses({});
    ASSERT_EQ(expected.size(), 3u) << method.name;
    for (const Arguments& other :
         std::vector<Arguments>{{"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2",
                                 "--memory.recompute", "block"},
                                {"--nprocs", "2", "--mesh", "fsdp=2", "--gradient_accumulation_steps", "2"},
                                {"--nprocs", "2", "--mesh", "pp=2"}}) {
      SCOPED_TRACE(fmt::format("{} {}", method.name, fmt::join(other, " ")));
      for (const auto& [step, loss] : losses(other)) EXPECT_NEAR(loss, expected.at(step), 2e-5) << step;
    }
  }
}

// An epoch in one batch, whether samples share rows or not.
TEST_F(Preference, PackedSamplesCountAsThoseWithRowsOfTheirOwn) {
  for (const Method& method : Methods()) {
    SCOPED_TRACE(method.name);
    const auto losses = [&](const Arguments& more) {
      const Ended ended = Temper(
          TrainBy(method, With({"--overwrite", "--max_steps", "2", "--gradient_accumulation_steps", "24"}, more)));
      EXPECT_EQ(ended.code, 0) << ended.err;
      return Losses(Path("out"));
    };
    const auto packed = losses({}), alone = losses({"--packing", "false"});
    for (const auto& [step, loss] : alone) EXPECT_NEAR(loss, packed.at(step), 2e-5) << step;
  }
}

TEST_F(Preference, AStoppedRunOfAnyMethodEndsWithTheSameBytes) {
  for (const Method& method : Methods()) {
    SCOPED_TRACE(method.name);
    ExpectSameIfStopped(
        Path(method.name),
        TrainBy(method, {"--max_steps", "8", "--save_steps", "2", "--logging_steps", "3", "--eval_fraction", "0.25"}),
        Slurp(method.data), method.data);
  }
}

TEST_F(Preference, RatedAnswersAreLearned) {
  const Ended ended =
      Temper(TrainOnPairs({"--task", "kto", "--data", "rated.jsonl", "--max_steps", "6", "--eval_fraction", "0.25"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const std::vector<Json> rows = Rows(Path("out"));
  const Json &evaluation = rows.at(0), &last = rows.at(1), &first = rows.back();
  EXPECT_NEAR(first["loss"].get<double>(), 0.5, 1e-4) << "the adapter changes nothing yet";
  EXPECT_EQ(first["kl"].get<double>(), 0);
  EXPECT_LT(last["loss"].get<double>(), 0.45);
  EXPECT_GT(evaluation["eval_rewards/margins"].get<double>(), 0.1);
  EXPECT_TRUE(evaluation.contains("eval_kl"));
}

// The reference is another model: rewards are as if the run's own had become it.
TEST_F(Preference, AnotherModelMayBeTheReference) {
  ASSERT_EQ(Temper(TrainOnPairs({"--max_steps", "4", "--method", "full", "--learning_rate", "1e-3"})).code, 0);
  const Arguments run = TrainOnPairs({"--max_steps", "1", "--output_dir", "compared", "--reference", "out"});
  const Ended ended = Temper(run);
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json back = Rows(Path("compared")).back();
  EXPECT_LT(back["rewards/margins"].get<double>(), -0.2) << "the reference has learned what this model has not";
  EXPECT_EQ(ended.err.find("the comparison means nothing"), std::string::npos) << ended.err;
  // As the model of the start, it is no other one.
  const auto losses = [&](const Arguments& more) {
    const Ended one = Temper(With(TrainOnPairs({"--max_steps", "3", "--overwrite"}), more));
    EXPECT_EQ(one.code, 0) << one.err;
    return Losses(Path("out"));
  };
  const auto same = losses({"--reference", kModel});
  EXPECT_EQ(same, losses({}));
  // The scores are kept: the reference may have gone.
  const Ended on = Temper(With(run, {"--max_steps", "2", "--reference", "out", "--resume"}));
  EXPECT_EQ(on.code, 0) << on.err;
  ExpectEnd(Temper(TrainOnPairs({"--task", "orpo", "--reference", kModel})), 2,
            {"reference has no effect on task: orpo, which compares with no other model"});
}

// What tokens stand for counts, not how tokenizer.json is written: a run writes it as transformers reads it.
TEST_F(Preference, WarnsOfAReferenceOfOtherTokens) {
  const std::string file = CopyModel("reference") + "/tokenizer.json";
  Json tokenizer = Json::parse(temper::Slurp(file));
  const auto warns = [&] {
    temper::Spill(file, tokenizer.dump(1));
    const Ended ended = Temper(TrainOnPairs({"--max_steps", "1", "--reference", "reference", "--overwrite"}));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.err.find("the comparison means nothing") != std::string::npos;
  };
  EXPECT_FALSE(warns());
  Json& vocabulary = tokenizer["model"]["vocab"];
  auto last = std::prev(vocabulary.end()), before = std::prev(last);
  std::swap(last.value(), before.value());
  EXPECT_TRUE(warns());
}

TEST_F(Preference, RefusesDataAndSettingsOfOtherMethods) {
  ExpectEnd(Temper(Train({"--data", "rated.jsonl"})), 1, {"rated.jsonl line 2: 'label' is false", "--task kto"});
  ExpectEnd(Temper(TrainOnPairs({"--task", "kto"})), 1, {"pairs.jsonl line 1: a pair of answers", "--task dpo, simpo"});
  ExpectEnd(Temper(TrainOnPairs({"--data", "rated.jsonl"})), 1, {"rated.jsonl line 1: no pair of answers"});
  Spill("scored.jsonl", R"({"prompt": "a", "completion": "b", "label": 0.7})");
  ExpectEnd(Temper(TrainOnPairs({"--task", "kto", "--data", "scored.jsonl"})), 1,
            {"scored.jsonl line 1: 'label' is 0.7, but a rating is true (an answer to give) or false"});
  Spill("bare.jsonl", R"({"prompt": "a", "completion": "b"})");
  ExpectEnd(Temper(TrainOnPairs({"--task", "kto", "--data", "bare.jsonl"})), 1, {"bare.jsonl line 1: no rating"});
  Spill("one.jsonl", R"({"prompt": "a", "completion": "b", "label": true})");
  ExpectEnd(Temper(TrainOnPairs({"--task", "kto", "--data", "one.jsonl"})), 2, {"here is one alone: give more rows"});
  ExpectEnd(Temper(TrainOnPairs({"--task", "simpo", "--dpo.beta", "0.2"})), 2, {"dpo.* has no effect on task: simpo"});
  ExpectEnd(Temper(TrainOnPairs({"--kto.beta", "0.2"})), 2, {"kto.* has no effect on task: dpo"});
  ExpectEnd(Temper(TrainOnPairs({"--task", "kto", "--data", "rated.jsonl", "--train_on_prompt"})), 2,
            {"task: kto has no use for train_on_prompt"});
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

// `temper eval --task`: the adapter's base, or --reference, is the model that is compared with.
TEST_F(Preference, AnEvaluationOfTheResultIsThatOfItsRun) {
  const auto cut = [this](const char* from, const char* train, const char* held_out) {
    const std::string rows = Slurp(from);
    size_t half = 0;
    for (int i = 0; i < 14; ++i) half = rows.find('\n', half) + 1;
    Spill(train, rows.substr(0, half));
    Spill(held_out, rows.substr(half));
  };
  cut("pairs.jsonl", "train_pairs.jsonl", "eval_pairs.jsonl");
  cut("rated.jsonl", "train_rated.jsonl", "eval_rated.jsonl");
  std::vector<Method> methods = Methods();
  methods.push_back({"dpo", {"--task", "dpo", "--train_modules", "lm_head"}});
  methods.push_back({"full", {"--task", "dpo", "--method", "full", "--learning_rate", "1e-4"}});
  for (const Method& method : methods) {
    SCOPED_TRACE(method.name);
    const bool rated = std::string(method.data) == "rated.jsonl", full = std::string(method.name) == "full";
    const std::string held_out = rated ? "eval_rated.jsonl" : "eval_pairs.jsonl";
    const Ended ended = Temper(TrainBy({method.name, method.options, rated ? "train_rated.jsonl" : "train_pairs.jsonl"},
                                       {"--eval_data", held_out, "--max_steps", "3", "--overwrite"}));
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json last = Rows(Path("out")).at(0);
    // The result of a full run is in the type of config.json; its checkpoint is f32.
    const char* const trained = full ? "out/checkpoint-3" : "out";
    Arguments eval = {"eval", trained, "--data", held_out, "--dtype", "f32", "--max_seq_len", "128"};
    for (size_t i = 0; i + 1 < method.options.size(); i += 2) {
      const std::string& name = method.options[i];
      if (name == "--task" || name.find('.') != std::string::npos) eval = With(eval, {name, method.options[i + 1]});
    }
    if (full) {
      ExpectEnd(Temper(eval), 2,
                {"task: dpo compares with the model as it was before", "give that model by --reference"});
      eval = With(eval, {"--reference", kModel});
    }
    const Ended measured = Temper(eval);
    ASSERT_EQ(measured.code, 0) << measured.err;
    const Json numbers = Json::parse(measured.out);
    EXPECT_EQ(numbers["samples"], 10);
    int compared = 0;
    for (const auto& [name, value] : numbers.items()) {
      if (name == "samples") continue;
      const std::string of_run = name.starts_with("eval_") ? name : "eval_" + name;
      EXPECT_NEAR(value.get<double>(), last.at(of_run).get<double>(),
                  1e-5 * std::max(1.0, std::fabs(value.get<double>())))
          << name;
      ++compared;
    }
    EXPECT_GE(compared, 5);
    EXPECT_EQ(measured.err.find("to measure as it was trained"), std::string::npos) << measured.err;
    if (method.options.back() != "lm_head") continue;
    const Ended other = Temper(With(eval, {"--dpo.beta", "0.7"}));
    EXPECT_EQ(other.code, 0) << other.err;
    EXPECT_NE(other.err.find("dpo.beta is 0.7 here, and 0.1 in out/run.yaml: to measure as it was trained, add "
                             "--dpo.beta 0.1"),
              std::string::npos)
        << other.err;
  }
  const Arguments eval = {"eval", "out", "--data", "eval_pairs.jsonl", "--max_seq_len", "128"};
  ExpectEnd(Temper(With(eval, {"--task", "classify"})), 2, {"task: classify is not what out", "set task: sft"});
  ExpectEnd(Temper(With(eval, {"--task", "simpo", "--dpo.beta", "0.2"})), 2, {"dpo.* has no effect on task: simpo"});
  ExpectEnd(Temper(With(eval, {"--task", "simpo", "--reference", kModel})), 2,
            {"reference has no effect on task: simpo"});
}

TEST_F(Preference, TheBestCheckpointIsThatOfTheNumberThatTheUserNames) {
  const Arguments run = TrainOnPairs({"--max_steps", "4", "--eval_fraction", "0.25", "--eval_steps", "1",
                                      "--save_steps", "1", "--load_best_model_at_end", "true", "--overwrite"});
  const auto result_of = [this](const Ended& ended) {
    EXPECT_EQ(ended.code, 0) << ended.err;
    const size_t at = ended.err.find("best        ");
    return at == std::string::npos ? ended.err : ended.err.substr(at, ended.err.find('\n', at) - at);
  };
  const auto margins = [this] {
    std::vector<double> values;
    for (const Json& row : Rows(Path("out"))) {
      if (row.contains("eval_rewards/margins"))
        values.insert(values.begin(), row["eval_rewards/margins"].get<double>());
    }
    return values;
  };
  const std::string by_margins = result_of(Temper(With(run, {"--metric_for_best_model", "eval_rewards/margins"})));
  ASSERT_EQ(margins().size(), 4u);
  ASSERT_LT(margins()[0], margins()[3]) << "the test needs a run that learns";
  EXPECT_EQ(by_margins, fmt::format("best        eval_rewards/margins {:.4f} at step 4", margins()[3]));
  // The other way round, the first step is the best; its checkpoint is the result, and those after it end the run.
  const Arguments least = With(run, {"--metric_for_best_model", "rewards/margins", "--greater_is_better", "false"});
  const Ended first = Temper(With(least, {"--early_stopping_patience", "2"}));
  EXPECT_EQ(result_of(first), fmt::format("best        eval_rewards/margins {:.4f} at step 1", margins()[0]));
  EXPECT_NE(first.err.find("early stop  after step 3: 2 evaluations in a row did not lower eval_rewards/margins"),
            std::string::npos)
      << first.err;
  EXPECT_EQ(Slurp("out/adapter_model.safetensors"), Slurp("out/checkpoint-1/adapter_model.safetensors"));
  // A run that goes on keeps the best, unless it compares by another number.
  const Arguments half = With(least, {"--max_steps", "2"});
  ASSERT_EQ(Temper(half).code, 0);
  const auto resume = [&](Arguments more) {
    std::erase(more, "--overwrite");
    return Temper(With(more, {"--resume"}));
  };
  EXPECT_EQ(result_of(resume(least)), fmt::format("best        eval_rewards/margins {:.4f} at step 1", margins()[0]));
  ASSERT_EQ(Temper(half).code, 0);
  const Ended changed = resume(With(run, {"--metric_for_best_model", "eval_loss"}));
  EXPECT_NE(changed.err.find("changed     the best eval_rewards/margins so far"), std::string::npos) << changed.err;
  EXPECT_NE(changed.err.find("start anew: evaluations are compared by eval_loss now"), std::string::npos);
  EXPECT_NE(result_of(changed).find("best        eval_loss"), std::string::npos);
  ExpectEnd(Temper(With(run, {"--metric_for_best_model", "eval_f1"})), 2,
            {"metric_for_best_model: evaluations of task dpo report no 'eval_f1': give one of loss, rewards/chosen, "
             "rewards/rejected, rewards/accuracies, rewards/margins"});
  ExpectEnd(Temper(TrainOnPairs({"--metric_for_best_model", "rewards/margins"})), 2,
            {"metric_for_best_model compares evaluations: add eval_data or eval_fraction"});
}

TEST_F(Preference, AReferenceIsLookedAtBeforeTheDataIsRead) {
  Spill("broken.jsonl", Slurp("pairs.jsonl") + "{\n");
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("no_model")).ok());
  Spill("no_model/config.json", "{}");
  ExpectEnd(Temper(TrainOnPairs({"--data", "broken.jsonl", "--reference", "no_model"})), 1, {"no_model"});
}

TEST_F(Preference, AWeightOfAnAnswerIsRefusedWithARemedy) {
  const std::string messages =
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0.5}])";
  Spill("weighted.jsonl", R"({"messages": )" + messages + R"(, "label": true})" + "\n");
  ExpectEnd(Temper(TrainOnPairs({"--task", "kto", "--data", "weighted.jsonl"})), 1,
            {"weighted.jsonl line 1: an answer has the weight 0.5, which has no meaning beside a rating"});
}

TEST_F(Preference, RefusesWhatItHasNoUseFor) {
  ExpectEnd(Temper(TrainOnPairs({"--data", "d.jsonl"})), 1, {"d.jsonl line 1: no pair of answers. The row has "});
  ExpectEnd(Temper(Train({"--data", "pairs.jsonl"})), 1,
            {"pairs.jsonl line 1: preference data ('chosen' and 'rejected'): add --task dpo, simpo, orpo "
             "or reward, or "
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
  std::vector<Method> methods = Methods();
  methods.push_back({"dpo", {"--task", "dpo"}});
  for (const Method& method : methods) {
    SCOPED_TRACE(method.name);
    const auto losses = [&](const Arguments& more) {
      Arguments run = TrainBy(method, {"--model", model, "--from_scratch", "--method", "full", "--overwrite"});
      run = With(run, more);
      const Ended ended = Temper(run);
      EXPECT_EQ(ended.code, 0) << ended.err;
      return Losses(Path("out"));
    };
    const auto expected = losses({}), got = losses({"--nprocs", "2", "--mesh", "tp=2"});
    ASSERT_EQ(got.size(), 4u);
    if (std::string_view(method.name) == "dpo") {
      EXPECT_LT(expected.at(4), expected.at(1) - 0.01);
    }
    for (const auto& [step, loss] : got) EXPECT_NEAR(loss, expected.at(step), 2e-5) << step;
  }
}

TEST_F(Preference, PreviewShowsRatings) {
  const Ended ended = Temper({"data", "preview", kModel, "--data", "rated.jsonl", "--task", "kto"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("an answer to give"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("an answer to avoid"), std::string::npos) << ended.out;
}

TEST_F(Preference, PreviewShowsBothAnswers) {
  const Ended ended = Temper({"data", "preview", kModel, "--data", "pairs.jsonl", "--task", "dpo", "--samples", "1"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const size_t chosen = ended.out.find("--- chosen: "), rejected = ended.out.find("--- rejected: ");
  ASSERT_NE(chosen, std::string::npos) << ended.out;
  ASSERT_NE(rejected, std::string::npos) << ended.out;
  EXPECT_LT(ended.out.find("[[It is 0.<|end|>]]"), rejected);
  EXPECT_NE(ended.out.find(", as above up to token ", rejected), std::string::npos) << "where they part";
  EXPECT_GT(ended.out.find("[[It might be 7, but who knows?<|end|>]]"), rejected);
}

}  // namespace
}  // namespace temper::program::preference_test
