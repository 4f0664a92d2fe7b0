// Distillation (task distill): `temper train` on answers, with a teacher of another family and size.
#include <fmt/ranges.h>

#include <cmath>

#include "temper_program.h"

namespace temper::program::distill_test {
namespace {

const std::string kGoldens = std::string(kProjectFolder) + "/tests/parity/goldens";
const std::string kTeacher = kGoldens + "/teacher";

class Distill : public Workplace {
 protected:
  Distill() {
    std::string rows;
    for (int i = 0; i < 24; ++i) {
      rows += fmt::format(R"({{"prompt": "What is {} plus {}?", "completion": " It is {}."}})", i, 2 * i, 3 * i) + "\n";
    }
    Spill("answers.jsonl", rows);
  }

  static Arguments Learn(const Arguments& more) {
    return With(Train({"--data", "answers.jsonl", "--task", "distill", "--teacher", kTeacher, "--dtype", "f32",
                       "--learning_rate", "1e-3", "--max_seq_len", "128", "--gradient_accumulation_steps", "4",
                       "--max_steps", "4"}),
                more);
  }
};

TEST_F(Distill, ComesNearerToTheTeacher) {
  const Ended ended = Temper(Learn({"--max_steps", "8", "--eval_fraction", "0.25"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find(fmt::format("teacher     {} (Gemma2ForCausalLM), ", kTeacher)), std::string::npos)
      << ended.err;
  const std::vector<Json> rows = Rows(Path("out"));
  EXPECT_TRUE(rows.at(0).contains("eval_loss"));
  EXPECT_LT(rows.at(1)["loss"].get<double>(), rows.back()["loss"].get<double>() - 0.002);
}

// tests/parity/make_distill_goldens.py: 20 steps of GKDTrainer on all conversations at once, continuing an adapter or
// in full, for each kind of divergence.
TEST_F(Distill, TwentyStepsAreThoseOfTrl) {
  const Json golden = Json::parse(temper::Slurp(kGoldens + "/distill.json"));
  std::string rows;
  for (const Json& row : golden["conversations"]) rows += row.dump() + "\n";
  Spill("golden.jsonl", rows);
  ASSERT_GE(golden["cases"].size(), 8u);
  for (const auto& [name, wanted] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    Arguments run = Learn({"--data", "golden.jsonl", "--max_seq_len", "512", "--gradient_accumulation_steps", "1",
                           "--max_steps", "20", "--lr_scheduler_type", "constant", "--overwrite", "--distill.beta",
                           wanted["beta"].dump(), "--distill.temperature", wanted["temperature"].dump(),
                           "--learning_rate", wanted["learning_rate"].dump()});
    run = wanted["full"].get<bool>() ? With(run, {"--method", "full"})
                                     : With(run, {"--adapter", kGoldens + "/adapters/preference"});
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

// Micro-batches, packing, recomputation and the ranks of a mesh see the same tokens.
TEST_F(Distill, LossesDoNotDependOnHowAStepIsComputed) {
  const auto losses = [&](const Arguments& more) {
    const Ended ended = Temper(Learn(With({"--overwrite", "--gradient_accumulation_steps", "8"}, more)));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Losses(Path("out"));
  };
  const auto expected = losses({});
  ASSERT_EQ(expected.size(), 4u);
  for (const Arguments& other : std::vector<Arguments>{
           {"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "4", "--memory.recompute", "block"},
           {"--memory.recompute", "selective"},
           {"--nprocs", "2", "--mesh", "dp=2", "--gradient_accumulation_steps", "4"},
           {"--nprocs", "2", "--mesh", "fsdp=2", "--gradient_accumulation_steps", "4"},
           {"--nprocs", "2", "--mesh", "cp=2"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(other, " ")));
    for (const auto& [step, loss] : losses(other)) EXPECT_NEAR(loss, expected.at(step), 2e-5) << step;
  }
}

TEST_F(Distill, AStoppedRunEndsWithTheSameBytes) {
  for (const char* method : {"full", "lora"}) {
    SCOPED_TRACE(method);
    ExpectSameIfStopped(Path(method),
                        Learn({"--method", method, "--max_steps", "8", "--save_steps", "2", "--logging_steps", "3",
                               "--eval_fraction", "0.25"}),
                        Slurp("answers.jsonl"), "answers.jsonl");
  }
}

TEST_F(Distill, AnEvaluationOfTheResultIsThatOfItsRun) {
  const Arguments run = Learn({"--eval_data", "answers.jsonl", "--distill.beta", "0.2"});
  ASSERT_EQ(Temper(run).code, 0);
  const Ended measured = Temper({"eval", "out", "--data", "answers.jsonl", "--dtype", "f32", "--max_seq_len", "128",
                                 "--task", "distill", "--teacher", kTeacher, "--distill.beta", "0.2"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_NEAR(Json::parse(measured.out)["eval_loss"].get<double>(), Rows(Path("out")).at(0)["eval_loss"].get<double>(),
              1e-6);
}

// The teacher's weights are the only ones that a plan with it has more; in int8 they take a quarter of f32's bytes.
TEST_F(Distill, APlanShowsWhatTheTeacherTakes) {
  const auto plan = [&](const char* dtype, const Arguments& more = {}) {
    const Ended ended = Temper(With({"plan", "--model", kModel, "--task", "distill", "--teacher", kModel, "--dtype",
                                     dtype, "--max_seq_len", "128", "--json"},
                                    more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Json::parse(ended.out);
  };
  const Json in_f32 = plan("f32");
  EXPECT_EQ(in_f32["teacher"]["weight_bytes"].get<int64_t>(), 4 * in_f32["parameters"].get<int64_t>());
  // Processors may pack weights in bf16, whose panels are larger.
  const int64_t all = plan("bf16")["teacher"]["weight_bytes"].get<int64_t>();
  const int64_t kept = plan("bf16", {"--teacher_base_dtype", "int8"})["teacher"]["weight_bytes"].get<int64_t>();
  EXPECT_LT(kept, all);
  EXPECT_GT(kept, all / 2) << "the embedding stays as it is computed";
}

TEST_F(Distill, RefusesOtherTeachersAndSettings) {
  const Arguments plain = Train({"--data", "answers.jsonl"});
  ExpectEnd(Temper(With(plain, {"--task", "distill"})), 2,
            {"task: distill needs the model to learn from: add --teacher"});
  ExpectEnd(Temper(With(plain, {"--teacher", kTeacher})), 2,
            {"teacher has no effect on task: sft", "set task: distill"});
  ExpectEnd(Temper(With(plain, {"--distill.beta", "0.1"})), 2, {"distill.* has no effect on task: sft"});
  ExpectEnd(Temper(Learn({"--teacher", "nowhere"})), 1, {"nowhere"});
  ExpectEnd(Temper(Learn({"--teacher_base_dtype", "int8"})), 2,
            {"teacher_base_dtype: int8 is computed in bf16, but dtype is f32"});
  ExpectEnd(Temper(Learn({"--label_smoothing_factor", "0.1"})), 2,
            {"task: distill has no use for label_smoothing_factor"});
  ExpectEnd(Temper(Learn({"--nprocs", "2", "--mesh", "pp=2"})), 1, {"task: distill", "set mesh.pp to 1"});
  ExpectEnd(Temper(Learn({"--nprocs", "5", "--mesh", "tp=5", "--max_seq_len", "130", "--teacher", kModel})), 2,
            {"task distill compares whole vocabularies", "set mesh.tp to 1"});
  // Another vocabulary: of another size, or with other words.
  Json config = Json::parse(temper::Slurp(kTeacher + "/config.json"));
  config["vocab_size"] = 2000;
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("small")).ok());
  Spill("small/config.json", config.dump());
  temper::Spill(Path("small") + "/model.safetensors", temper::Slurp(kTeacher + "/model.safetensors"));
  ExpectEnd(Temper(Learn({"--teacher", "small"})), 2,
            {"teacher small: it has 2000 words, and", "has 2048", "give a model with the same vocabulary"});
  const std::string file = CopyModel("other") + "/tokenizer.json";
  Json tokenizer = Json::parse(temper::Slurp(file));
  Json& vocabulary = tokenizer["model"]["vocab"];
  auto last = std::prev(vocabulary.end()), before = std::prev(last);
  std::swap(last.value(), before.value());
  temper::Spill(file, tokenizer.dump(1));
  ExpectEnd(Temper(Learn({"--teacher", "other"})), 2,
            {"teacher other: token ", "give a model with the same vocabulary"});
}

}  // namespace
}  // namespace temper::program::distill_test
