// Classification (task classify): `temper train` on rows with labels, and what becomes of the head.
#include <fmt/ranges.h>

#include <cmath>

#include "temper_program.h"

namespace temper::program::classify_test {
namespace {

const std::string kGoldens = std::string(kProjectFolder) + "/tests/parity/goldens";

class Classify : public Workplace {
 protected:
  Classify() {
    std::string rows;
    const char* const sounds[] = {"It says meow", "It barks"};
    for (int i = 0; i < 24; ++i) {
      rows += fmt::format(R"({{"text": "{}{}.", "label": "{}"}})", sounds[i % 2], std::string(i % 5, '!'),
                          i % 2 == 0 ? "cat" : "dog") +
              "\n";
    }
    Spill("animals.jsonl", rows);
  }

  static Arguments TrainOnLabels(const Arguments& more) {
    return With(Train({"--data", "animals.jsonl", "--task", "classify", "--dtype", "f32", "--learning_rate", "3e-3",
                       "--max_seq_len", "64", "--gradient_accumulation_steps", "2"}),
                more);
  }
};

TEST_F(Classify, LearnsToTellClassesApart) {
  for (const char* method : {"lora", "full"}) {
    SCOPED_TRACE(method);
    const bool lora = std::string(method) == "lora";
    const Ended ended = Temper(TrainOnLabels({"--method", method, "--max_steps", "12", "--eval_fraction", "0.25",
                                              "--learning_rate", lora ? "5e-3" : "1e-3", "--overwrite"}));
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json evaluation = Rows(Path("out")).at(0);
    EXPECT_EQ(evaluation["eval_accuracy"], 1);
    EXPECT_EQ(evaluation["eval_f1_macro"], 1);
    EXPECT_EQ(evaluation["eval_f1_binary"], 1);
    EXPECT_LT(Losses(Path("out")).at(12), 0.2);
    const Json config = Json::parse(Slurp("out/config.json"));
    EXPECT_EQ(config["architectures"], Json({"LlamaForSequenceClassification"}));
    EXPECT_EQ(config["id2label"], Json({{"0", "cat"}, {"1", "dog"}}));
    EXPECT_EQ(config["label2id"], Json({{"cat", 0}, {"dog", 1}}));
    EXPECT_EQ(config["num_labels"], 2);
    EXPECT_EQ(config["pad_token_id"], 1);
    if (lora) {
      const Json adapter = Json::parse(Slurp("out/adapter_config.json"));
      EXPECT_EQ(adapter["task_type"], "SEQ_CLS");
      EXPECT_EQ(adapter["modules_to_save"], Json({"score"}));
    }
    const Ended inspected = Temper({"inspect", "out"});
    EXPECT_EQ(inspected.code, 0) << inspected.err;
    Spill("new.jsonl", "{\"text\": \"It barks??\"}\n{\"text\": \"It says meow\"}\n");
    const Ended exported = Temper({"export", "out", "--output_dir", "exported", "--overwrite"});
    ASSERT_EQ(exported.code, 0) << exported.err;
    EXPECT_EQ(Json::parse(Slurp("exported/config.json"))["id2label"], config["id2label"]);
    std::vector<Json> first;
    for (const char* model : {"out", "exported"}) {
      SCOPED_TRACE(model);
      const Ended scored = Temper({"score", model, "--data", "new.jsonl", "--dtype", "f32"});
      ASSERT_EQ(scored.code, 0) << scored.err;
      const std::vector<Json> lines = Lines(scored.out);
      ASSERT_EQ(lines.size(), 2u);
      EXPECT_EQ(lines[0]["label"], "dog");
      EXPECT_EQ(lines[1]["label"], "cat");
      EXPECT_EQ(lines[1]["line"], 2);
      EXPECT_NEAR(lines[0]["probabilities"]["cat"].get<double>() + lines[0]["probability"].get<double>(), 1, 1e-9);
      const Ended evaluated = Temper({"eval", model, "--data", "animals.jsonl", "--dtype", "f32"});
      ASSERT_EQ(evaluated.code, 0) << evaluated.err;
      const Json measured = Json::parse(evaluated.out);
      EXPECT_EQ(measured["accuracy"], 1);
      EXPECT_EQ(measured["samples"], 24);
      ExpectEnd(Temper({"generate", model, "--prompt", "Who?"}), 2, {"judges texts and writes none"});
    }
  }
}

TEST_F(Classify, ItsClassesDoNotStayBesideAnotherAdapter) {
  Spill("qa.jsonl", "{\"prompt\": \"Why?\", \"completion\": \" Because.\"}\n");
  ASSERT_EQ(Temper(TrainOnLabels({"--max_steps", "1"})).code, 0);
  const Ended preview = Temper({"data", "preview", "out", "--data", "qa.jsonl"});
  EXPECT_EQ(preview.code, 0) << "rows of another task: " << preview.err;
  const Ended other = Temper(Train({"--max_steps", "1", "--overwrite"}));
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_FALSE(Has("out/config.json"));
  const Ended answered = Temper({"generate", "out", "--prompt", "Why", "--max_new_tokens", "2", "--threads", "1"});
  EXPECT_EQ(answered.code, 0) << answered.err;
}

TEST_F(Classify, OtherWaysOfLearningFromLabelsAreRefused) {
  const std::string model = ModelWithHead("several", kGoldens + "/heads/classify.safetensors", {"a", "b", "c"});
  Json config = Json::parse(Slurp("several/config.json"));
  config["problem_type"] = "multi_label_classification";
  Spill("several/config.json", config.dump());
  ExpectEnd(Temper({"score", "several", "--data", "d.jsonl"}), 1,
            {"several/config.json", "multi_label_classification", "single_label_classification"});
}

// tests/parity/make_head_goldens.py: five steps of transformers' Trainer on all rows at once, continuing an adapter or
// in full, and what the model says of the rows then.
TEST_F(Classify, StepsAreThoseOfTransformers) {
  const Json golden = Json::parse(temper::Slurp(kGoldens + "/classify.json"));
  std::string rows;
  for (const Json& row : golden["rows"]) rows += row.dump() + "\n";
  Spill("golden.jsonl", rows);
  const std::string with_head = ModelWithHead("with_head", kGoldens + "/heads/classify.safetensors",
                                              golden["classes"].get<std::vector<std::string>>());
  for (const auto& [name, wanted] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const bool full = wanted.value("full", false);
    Arguments run = TrainOnLabels({"--data", "golden.jsonl", "--max_seq_len", "256", "--gradient_accumulation_steps",
                                   "1", "--max_steps", "5", "--lr_scheduler_type", "constant", "--overwrite",
                                   "--learning_rate", wanted["learning_rate"].dump()});
    run = With(run, full ? Arguments{"--method", "full", "--model", with_head}
                         : Arguments{"--adapter", kGoldens + "/adapters/classify"});
    for (const char* setting : {"weight_decay", "label_smoothing_factor"}) {
      if (wanted.contains(setting)) run = With(run, {std::string("--") + setting, wanted[setting].dump()});
    }
    const Ended ended = Temper(run);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const std::vector<Json> steps = Rows(Path("out"));
    ASSERT_EQ(steps.size(), 5u);
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const auto& [report, value] : wanted["steps"][i].items()) {
        const double number = value.get<double>();
        EXPECT_NEAR(steps[4 - i][report].get<double>(), number, 1e-4 * std::max(1.0, std::fabs(number)))
            << "step " << i + 1 << " " << report;
      }
    }
    const Ended scored = Temper({"score", "out/checkpoint-5", "--data", "golden.jsonl", "--dtype", "f32"});
    ASSERT_EQ(scored.code, 0) << scored.err;
    const std::vector<Json> lines = Lines(scored.out);
    ASSERT_EQ(lines.size(), golden["rows"].size());
    for (size_t s = 0; s < lines.size(); ++s) {
      for (size_t c = 0; c < golden["classes"].size(); ++c) {
        EXPECT_NEAR(lines[s]["probabilities"][golden["classes"][c].get<std::string>()].get<double>(),
                    wanted["probabilities"][s][c].get<double>(), 1e-4)
            << s << " " << c;
      }
    }
  }
}

TEST_F(Classify, AStoppedRunEndsWithTheSameBytes) {
  for (const char* method : {"full", "lora"}) {
    SCOPED_TRACE(method);
    const Arguments run = TrainOnLabels({"--method", method, "--max_steps", "8", "--save_steps", "2", "--logging_steps",
                                         "3", "--eval_fraction", "0.25"});
    ExpectSameIfStopped(Path(method), run, Slurp("animals.jsonl"), "animals.jsonl");
  }
}

// Micro-batches, packing, recomputation and the ranks of a mesh see the same sequences.
TEST_F(Classify, LossesDoNotDependOnHowAStepIsComputed) {
  const auto losses = [&](const Arguments& more) {
    const Ended ended =
        Temper(With(TrainOnLabels({"--overwrite", "--packing", "false", "--eval_data", "animals.jsonl"}), more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    auto all = Losses(Path("out"));
    const Json evaluation = Rows(Path("out")).at(0);
    all[-1] = evaluation["eval_loss"].get<double>();
    all[-2] = evaluation["eval_f1_macro"].get<double>();
    return all;
  };
  const auto expected = losses({});
  ASSERT_EQ(expected.size(), 6u);
  EXPECT_LT(expected.at(4), expected.at(1));
  for (const Arguments& other :
       {Arguments{"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "1", "--memory.recompute",
                  "block"},
        Arguments{"--nprocs", "2", "--mesh", "fsdp=2", "--gradient_accumulation_steps", "1"},
        Arguments{"--nprocs", "2", "--mesh", "dp=2", "--gradient_accumulation_steps", "1"},
        Arguments{"--nprocs", "2", "--mesh", "pp=2"}, Arguments{"--nprocs", "2", "--mesh", "cp=2"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(other, " ")));
    for (const auto& [step, loss] : losses(other)) EXPECT_NEAR(loss, expected.at(step), 1e-5) << step;
  }
}

// All rows in each step: then a packed step has the same sequences as one of a row each.
TEST_F(Classify, PackedSequencesAreAsOnesOfTheirOwn) {
  const auto losses = [&](const Arguments& more) {
    const Ended ended = Temper(With(TrainOnLabels({"--overwrite"}), more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Losses(Path("out"));
  };
  const auto alone = losses({"--packing", "false", "--gradient_accumulation_steps", "24"}),
             packed = losses({"--max_seq_len", "512", "--gradient_accumulation_steps", "1"});
  ASSERT_EQ(packed.size(), 4u);
  for (const auto& [step, loss] : packed) EXPECT_NEAR(loss, alone.at(step), 1e-5) << step;
}

// Tensor ranks share the rows of the head: three classes on two ranks, two on two.
TEST_F(Classify, TensorRanksShareTheClasses) {
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
  for (const bool third : {false, true}) {
    SCOPED_TRACE(third);
    Spill("data.jsonl", Slurp("animals.jsonl") + (third ? "{\"text\": \"It is wet.\", \"label\": \"newt\"}\n" : ""));
    const auto losses = [&](const Arguments& more) {
      const Ended ended = Temper(With(TrainOnLabels({"--data", "data.jsonl", "--model", model, "--from_scratch",
                                                     "--method", "full", "--overwrite", "--eval_data", "data.jsonl"}),
                                      more));
      EXPECT_EQ(ended.code, 0) << ended.err;
      auto all = Losses(Path("out"));
      all[-1] = Rows(Path("out")).at(0)["eval_f1_macro"].get<double>();
      return all;
    };
    const auto expected = losses({}), got = losses({"--nprocs", "2", "--mesh", "tp=2"});
    ASSERT_EQ(got.size(), 5u);
    for (const auto& [step, loss] : got) EXPECT_NEAR(loss, expected.at(step), 1e-5) << step;
  }
}

TEST_F(Classify, ReadsConversationsTokensAndNumbers) {
  Spill("mixed.jsonl", R"({"messages": [{"role": "user", "content": "Good?"}], "label": 5}
{"messages": [{"role": "user", "content": "Bad?"}, {"role": "assistant", "content": "Yes."}], "label": 1}
)");
  const Ended ended = Temper(TrainOnLabels({"--data", "mixed.jsonl", "--max_steps", "1"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(Json::parse(Slurp("out/config.json"))["id2label"], Json({{"0", "1"}, {"1", "5"}}));
  Spill("tokens.jsonl", R"({"input_ids": [5, 6, 7], "label": "b"}
{"input_ids": [8, 9], "label": "a"}
)");
  EXPECT_EQ(Temper(TrainOnLabels({"--data", "tokens.jsonl", "--max_steps", "1", "--overwrite"})).code, 0);
  Spill("sst.jsonl", R"({"sentence": "good", "labels": 1, "idx": 3}
{"sentence": "bad", "labels": 0, "idx": 4}
)");
  EXPECT_EQ(Temper(TrainOnLabels({"--data", "sst.jsonl", "--max_steps", "1", "--overwrite"})).code, 0);
  Spill("table.csv", "stars,review\n1,bad\n2,\"good, really\"\n");
  const Ended table = Temper(TrainOnLabels(
      {"--data", "table.csv", "--columns", "label=stars,text=review", "--max_steps", "1", "--overwrite"}));
  EXPECT_EQ(table.code, 0) << table.err;
}

TEST_F(Classify, RefusesWhatItHasNoUseFor) {
  const auto train_on = [&](const std::string& rows, const Arguments& more = {}) {
    Spill("bad.jsonl", rows);
    return Temper(With(TrainOnLabels({"--data", "bad.jsonl", "--max_steps", "1", "--overwrite"}), more));
  };
  ExpectEnd(train_on("{\"text\": \"a\"}\n"), 1,
            {"bad.jsonl line 1: no label. The row has 'text'; task classify reads"});
  ExpectEnd(train_on("{\"text\": \"a\", \"label\": true}\n"), 1,
            {"bad.jsonl line 1: 'label' is boolean, but a class is a text or a whole number"});
  ExpectEnd(train_on("{\"text\": \"a\", \"label\": 0.5}\n"), 1, {"'label' is 0.5, but a class is a text or a whole"});
  ExpectEnd(train_on("{\"text\": \"a\", \"label\": \"x\"}\n"), 2,
            {"bad.jsonl: all rows have the label 'x', and there is nothing to tell apart: add rows of other classes"});
  ExpectEnd(train_on("{\"chosen\": \"a\", \"rejected\": \"b\"}\n"), 1,
            {"have no class: pairs are read by --task dpo, simpo, orpo or reward"});
  ExpectEnd(
      Temper(TrainOnLabels({"--metric_for_best_model", "rewards/margins", "--eval_fraction", "0.5"})), 2,
      {"evaluations of task classify report no 'rewards/margins': give one of loss, accuracy, f1_macro, f1_binary"});
  std::string three;
  for (int i = 0; i < 6; ++i) three += fmt::format("{{\"text\": \"a {}\", \"label\": {}}}\n", i, i % 3);
  Spill("three.jsonl", three);
  ExpectEnd(Temper(TrainOnLabels({"--data", "three.jsonl", "--metric_for_best_model", "eval_f1_binary",
                                  "--eval_fraction", "0.5", "--overwrite"})),
            2, {"eval_f1_binary is reported of two classes, and here are 3: set f1_macro"});
  ExpectEnd(train_on("{\"prompt\": \"a\", \"completion\": \"b\", \"label\": 1}\n"), 1,
            {"rows are prompt/completion, but a class is that of text"});
  Spill("eval.jsonl", "{\"text\": \"a\", \"label\": \"bird\"}\n");
  ExpectEnd(Temper(TrainOnLabels({"--eval_data", "eval.jsonl"})), 1,
            {"eval.jsonl line 1: the label 'bird' is none of the model's 2 classes ('cat', 'dog')"});
  ExpectEnd(Temper(TrainOnLabels({"--train_on_prompt"})), 2, {"task: classify has no use for train_on_prompt"});
  Spill("t.txt", "A text.");
  ExpectEnd(Temper(TrainOnLabels({"--data", "t.txt"})), 1, {"t.txt: a text file has no rows to classify"});
  ExpectEnd(Temper({"score", kModel, "--data", "animals.jsonl"}), 2, {"has no head that judges texts"});
  ASSERT_EQ(Temper(TrainOnLabels({"--max_steps", "1", "--method", "full", "--overwrite"})).code, 0);
  ExpectEnd(Temper(Train({"--model", "out", "--output_dir", "out2"})), 2,
            {"judges sequences (LlamaForSequenceClassification, 2 classes): set task: classify"});
}

}  // namespace
}  // namespace temper::program::classify_test
