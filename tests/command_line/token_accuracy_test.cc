// Token accuracy: the share of predicted tokens that the model ranks first, in training, evaluation and `temper eval`.
#include <cmath>

#include "temper_program.h"

namespace temper::program::token_accuracy_test {
namespace {

class TokenAccuracy : public Workplace {
 protected:
  // Three steps and evaluations of f32, which rounds no two logits to one.
  Arguments Run(const std::string& out, const Arguments& more) const {
    return With(Train({"--eval_data", "e.jsonl", "--eval_steps", "1", "--max_steps", "3", "--dtype", "f32",
                       "--output_dir", out, "--seed", "3"}),
                more);
  }
  std::vector<Json> RowsOf(const std::string& out, const Arguments& more) const {
    const Ended ended = Temper(Run(out, more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    said_ = ended.err;
    return Rows(Path(out));
  }
  mutable std::string said_;
};

TEST_F(TokenAccuracy, IsReportedBesideTheSameLosses) {
  const std::vector<Json> with = RowsOf("with", {"--token_accuracy", "true", "--tensorboard", "true"});
  EXPECT_NE(said_.find("  token_accuracy 0."), std::string::npos) << said_;
  EXPECT_NE(said_.find("  eval_token_accuracy 0."), std::string::npos) << said_;
  const std::vector<Json> without = RowsOf("without", {});
  ASSERT_EQ(with.size(), 6u);
  ASSERT_EQ(without.size(), 6u);
  for (size_t i = 0; i < with.size(); ++i) {
    for (const char* prefix : {"", "eval_"}) {
      const std::string loss = std::string(prefix) + "loss", accuracy = std::string(prefix) + "token_accuracy";
      ASSERT_EQ(with[i].contains(loss), without[i].contains(loss));
      ASSERT_EQ(with[i].contains(accuracy), with[i].contains(loss)) << with[i];
      EXPECT_FALSE(without[i].contains(accuracy)) << without[i];
      if (!with[i].contains(loss)) continue;
      EXPECT_EQ(with[i][loss], without[i][loss]);
      // The example's model knows the language, not the answers.
      EXPECT_GT(with[i][accuracy].get<double>(), 0.2);
      EXPECT_LT(with[i][accuracy].get<double>(), 0.9);
    }
  }
  std::string events;
  for (const auto& [file, bytes] : BytesOf(Path("with/runs"), "runs/")) events += bytes;
  EXPECT_NE(events.find("eval/token_accuracy"), std::string::npos);

  // The last evaluation was of the result.
  const Ended evaluated =
      Temper({"eval", "with", "--data", "e.jsonl", "--dtype", "f32", "--threads", "1", "--max_seq_len", "96"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const Json report = Json::parse(evaluated.out), last = with[with[0].contains("eval_loss") ? 0 : 1];
  EXPECT_EQ(report["tokens"], last["eval_tokens"]);
  // A row of metrics.jsonl has six digits.
  EXPECT_NEAR(report["token_accuracy"].get<double>(), last["eval_token_accuracy"].get<double>(), 1e-5);
  // A share of whole tokens.
  const double right = report["token_accuracy"].get<double>() * report["tokens"].get<double>();
  EXPECT_NEAR(right, std::round(right), 1e-6);
}

// Ranks of tp have a fifth of the vocabulary each.
TEST_F(TokenAccuracy, IsTheSameOnAMeshAndAfterAStop) {
  const Arguments options = {"--token_accuracy", "true", "--gradient_accumulation_steps", "2", "--max_seq_len", "100",
                             "--logging_steps",  "3"};
  const std::vector<Json> one = RowsOf("one", options);
  const std::vector<Json> five = RowsOf("five", With(options, {"--nprocs", "5", "--mesh.tp", "5"}));
  ASSERT_EQ(one.size(), five.size());
  for (size_t i = 0; i < one.size(); ++i) {
    for (const char* name : {"token_accuracy", "eval_token_accuracy"}) {
      if (!one[i].contains(name)) continue;
      // Sums have another order: a token with two logits that are nearly equal may change.
      EXPECT_NEAR(one[i][name].get<double>(), five[i][name].get<double>(), 0.004) << name << " " << one[i];
    }
  }
  (void)RowsOf("stopped", With(options, {"--max_steps", "2", "--lr_scheduler_type", "constant"}));
  (void)RowsOf("stopped", With(options, {"--lr_scheduler_type", "constant", "--resume"}));
  const std::vector<Json> whole = RowsOf("whole", With(options, {"--lr_scheduler_type", "constant"}));
  const std::vector<Json> stopped = Rows(Path("stopped"));
  EXPECT_EQ(stopped[0]["eval_token_accuracy"], whole[0]["eval_token_accuracy"]);
  // Without the report, nothing of it is left over.
  const std::vector<Json> off = RowsOf("stopped", With(options, {"--token_accuracy", "false", "--max_steps", "4",
                                                                 "--lr_scheduler_type", "constant", "--resume"}));
  EXPECT_FALSE(off[0].contains("token_accuracy") || off[0].contains("eval_token_accuracy")) << off[0];
}

TEST_F(TokenAccuracy, IsOfWordsAlone) {
  ExpectEnd(Temper(Run("out", {"--token_accuracy", "true", "--task", "dpo"})), 2,
            {"token_accuracy has no effect on task: dpo", "task: sft"});
}

}  // namespace
}  // namespace temper::program::token_accuracy_test
