// Unpacked rows (packing: false): each micro-batch runs in the Program of the shortest rows that hold its own.
#include "temper_program.h"

namespace temper::program::row_lengths_test {
namespace {

// Answers of some 25 to 220 tokens; one in five is longer than 128, half are shorter than 64.
std::string RowsOfManyLengths() {
  constexpr int kRepeats[] = {1, 3, 8, 1, 14, 2, 5, 1, 2, 10};
  std::string rows;
  for (int i = 0; i < 30; ++i) {
    std::string answer;
    for (int k = 0; k < kRepeats[i % 10]; ++k)
      answer += fmt::format(" Arr, the ship has {} sails and a parrot.", i + k);
    rows += Json({{"prompt", fmt::format("What of ship {}?", i)}, {"completion", answer}}).dump() + "\n";
  }
  return rows;
}

class RowLengthsOfRuns : public Workplace {
 protected:
  RowLengthsOfRuns() {
    Spill("rows.jsonl", RowsOfManyLengths());
    Spill("held.jsonl", RowsOfManyLengths());
  }
  static Arguments Run(const std::string& out, const Arguments& more) {
    return With(Train({"--data", "rows.jsonl", "--eval_data", "held.jsonl", "--eval_steps", "2", "--packing", "false",
                       "--max_seq_len", "256", "--dtype", "f32", "--output_dir", out}),
                more);
  }
  // Limits of memory are planned for one length, so that such a run keeps it. The same losses are expected, of training
  // and evaluation, within `tolerance` of them.
  void ExpectTheLossesOfWholeRows(const Arguments& options, double tolerance) {
    SCOPED_TRACE(fmt::format("{}", options.back()));
    const Ended shorter = Temper(Run("shorter", With(options, {"--overwrite"})));
    ASSERT_EQ(shorter.code, 0) << shorter.err;
    const Ended whole = Temper(Run("whole", With(options, {"--overwrite", "--memory.device", "8GiB"})));
    ASSERT_EQ(whole.code, 0) << whole.err;
    EXPECT_NE(shorter.err.find("each micro-batch has the shortest of 256, 128, 64 tokens"), std::string::npos)
        << shorter.err;
    EXPECT_NE(whole.err.find("rows keep 256 tokens: "), std::string::npos) << whole.err;
    const std::vector<Json> got = Rows(Path("shorter")), want = Rows(Path("whole"));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      for (const char* name : {"loss", "grad_norm", "eval_loss", "tokens", "eval_tokens"}) {
        ASSERT_EQ(got[i].contains(name), want[i].contains(name)) << got[i];
        if (!got[i].contains(name)) continue;
        const double expected = want[i][name].get<double>();
        EXPECT_NEAR(got[i][name].get<double>(), expected, tolerance * expected) << name << " " << got[i];
      }
    }
  }
};

// Micro-batches of several lengths add to the same gradients; a step of one has its own.
TEST_F(RowLengthsOfRuns, LossesAreThoseOfWholeRows) {
  ExpectTheLossesOfWholeRows({"--gradient_accumulation_steps", "4", "--per_device_train_batch_size", "1"}, 1e-5);
  ExpectTheLossesOfWholeRows({"--per_device_train_batch_size", "2", "--method", "full"}, 1e-5);
  ExpectTheLossesOfWholeRows(
      {"--gradient_accumulation_steps", "2", "--max_grad_norm", "0", "--per_device_train_batch_size", "1"}, 1e-5);
}

// Of rows alone: their draws are those of whole rows.
TEST_F(RowLengthsOfRuns, DropoutDrawsAsInWholeRows) {
  const Arguments draws = {"--lora.dropout",
                           "0.2",
                           "--neftune_noise_alpha",
                           "5",
                           "--gradient_accumulation_steps",
                           "2",
                           "--per_device_train_batch_size",
                           "1"};
  ExpectTheLossesOfWholeRows(draws, 1e-5);
  const Ended several = Temper(Run("several", With(draws, {"--per_device_train_batch_size", "2", "--max_steps", "1"})));
  ExpectEnd(several, 0, {"rows keep 256 tokens in training: dropout and noise"});
}

// Ranks with rows of their own evaluate in the length of the longest row of any.
TEST_F(RowLengthsOfRuns, SeveralRanksEvaluateInShorterRows) {
  for (const char* mesh : {"dp", "fsdp"}) {
    SCOPED_TRACE(mesh);
    const Arguments options = {
        "--nprocs", "2", std::string("--mesh.") + mesh, "2", "--per_device_train_batch_size", "1", "--overwrite"};
    const Ended shorter = Temper(Run("shorter", options));
    ExpectEnd(shorter, 0, {"rows keep 256 tokens in training: what several ranks exchange"});
    ExpectEnd(Temper(Run("whole", With(options, {"--memory.device", "8GiB"}))), 0,
              {"rows keep 256 tokens: where memory"});
    const std::vector<Json> got = Rows(Path("shorter")), want = Rows(Path("whole"));
    ASSERT_EQ(got.size(), want.size());
    int evaluations = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].value("loss", 0.0), want[i].value("loss", 0.0)) << "rows of training are as long";
      if (!want[i].contains("eval_loss")) continue;
      ++evaluations;
      const double expected = want[i]["eval_loss"].get<double>();
      EXPECT_NEAR(got[i]["eval_loss"].get<double>(), expected, 1e-5 * expected);
      EXPECT_EQ(got[i]["eval_tokens"], want[i]["eval_tokens"]);
    }
    EXPECT_GT(evaluations, 1);
  }
}

TEST_F(RowLengthsOfRuns, AResumeIsExact) {
  ExpectSameIfStopped(folder(),
                      Run("out", {"--max_steps", "8", "--gradient_accumulation_steps", "3", "--eval_strategy", "no",
                                  "--per_device_train_batch_size", "1", "--eval_data", Path("held.jsonl")}),
                      RowsOfManyLengths(), "rows.jsonl");
}

TEST_F(RowLengthsOfRuns, ThePlanSaysThem) {
  const auto plan = [&](const Arguments& more) {
    Arguments arguments = Run("out", more);
    arguments[0] = "plan";
    const Ended ended = Temper(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  EXPECT_NE(plan({}).find("lengths     256, 128, 64: "), std::string::npos) << plan({});
  const std::string mesh = plan({"--nprocs", "2", "--mesh.dp", "2"});
  EXPECT_NE(mesh.find("rows keep 256 tokens in training: what several ranks"), std::string::npos) << mesh;
  EXPECT_EQ(plan({"--packing", "true"}).find("lengths "), std::string::npos);
}

}  // namespace
}  // namespace temper::program::row_lengths_test
