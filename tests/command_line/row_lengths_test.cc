// Unpacked rows (packing: false): each micro-batch runs in the Program of the shortest rows that hold its own.
#include <fmt/ranges.h>

#include "temper_program.h"

namespace temper::program::row_lengths_test {
namespace {

const std::string kModels = std::string(kProjectFolder) + "/tests/parity/goldens/models/";

// Of 9, 49, 89, 129 and 169 tokens.
std::string RowsOfManyLengths(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    Json ids = Json::array();
    for (int k = 0; k < 9 + i % 5 * 40; ++k) ids.push_back((i * 7 + k * 5) % 30);
    rows += Json{{"input_ids", ids}}.dump() + "\n";
  }
  return rows;
}

const Arguments kOneRow = {"--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "3"};
const Arguments kTwoRows = {"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"};

class RowLengthsOfRuns : public Workplace {
 protected:
  RowLengthsOfRuns() {
    Spill("rows.jsonl", RowsOfManyLengths(30));
    Spill("held.jsonl", RowsOfManyLengths(5));
  }
  static Arguments Run(const std::string& out, const Arguments& more) {
    return With(Train({"--model", kModels + "llama_gqa_tied", "--data", "rows.jsonl", "--eval_data", "held.jsonl",
                       "--eval_steps", "2", "--packing", "false", "--max_seq_len", "256", "--dtype", "f32",
                       "--max_steps", "3", "--output_dir", out}),
                more);
  }
  // The same numbers of training and evaluation as with rows of max_seq_len, to the rounding of sums in another order.
  void ExpectTheLossesOfWholeRows(const Arguments& options, const std::string& each = "micro-batch") {
    SCOPED_TRACE(fmt::format("{}", fmt::join(options, " ")));
    const Ended shorter = Temper(Run("shorter", With(options, {"--overwrite"})));
    ASSERT_EQ(shorter.code, 0) << shorter.err;
    const Ended whole = Temper(Run("whole", With(options, {"--overwrite", "--pad_to_max_seq_len", "true"})));
    ASSERT_EQ(whole.code, 0) << whole.err;
    EXPECT_NE(shorter.err.find(fmt::format("each {} has the shortest of 256, 128, 64 tokens", each)), std::string::npos)
        << shorter.err;
    EXPECT_EQ(whole.err.find("has the shortest of"), std::string::npos) << whole.err;
    const std::vector<Json> got = Rows(Path("shorter")), want = Rows(Path("whole"));
    ASSERT_EQ(got.size(), want.size());
    int evaluations = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      evaluations += want[i].contains("eval_loss");
      for (const char* name : {"loss", "grad_norm", "aux_loss", "experts/largest_share", "experts/unused", "eval_loss",
                               "tokens", "eval_tokens"}) {
        ASSERT_EQ(got[i].contains(name), want[i].contains(name)) << name << " " << got[i];
        if (!got[i].contains(name)) continue;
        const double expected = want[i][name].get<double>();
        EXPECT_NEAR(got[i][name].get<double>(), expected, 1e-5 * expected) << name << " " << got[i];
      }
    }
    EXPECT_GT(evaluations, 1);
  }
};

// Micro-batches of several lengths add to the same gradients; a step of one has its own.
TEST_F(RowLengthsOfRuns, LossesAreThoseOfWholeRows) {
  ExpectTheLossesOfWholeRows(kOneRow);
  ExpectTheLossesOfWholeRows({"--per_device_train_batch_size", "2", "--method", "full"});
  ExpectTheLossesOfWholeRows(With(kOneRow, {"--max_grad_norm", "0"}));
}

TEST_F(RowLengthsOfRuns, DropoutAndNoiseDrawAsInWholeRows) {
  const Arguments draws = {"--lora.dropout", "0.2", "--neftune_noise_alpha", "5"};
  ExpectTheLossesOfWholeRows(With(kOneRow, draws));
  ExpectTheLossesOfWholeRows(With(kTwoRows, draws));
  ExpectTheLossesOfWholeRows(With(With(kTwoRows, draws), {"--nprocs", "2", "--mesh", "cp=2"}));
}

// All ranks run the Program of the longest row of any, and what they exchange meets within a micro-batch.
TEST_F(RowLengthsOfRuns, RanksTakeTheSameLength) {
  for (const char* mesh : {"dp=2", "fsdp=2", "tp=2", "cp=2"}) {
    ExpectTheLossesOfWholeRows(With(kOneRow, {"--nprocs", "2", "--mesh", mesh}));
  }
  ExpectTheLossesOfWholeRows(
      With(kTwoRows, {"--nprocs", "2", "--mesh", "fsdp=2", "--method", "full", "--mesh.grad_sync", "step"}));
  ExpectTheLossesOfWholeRows(With(kTwoRows, {"--nprocs", "2", "--mesh", "pp=2"}), "step");
}

// Values live where they do with whole rows.
TEST_F(RowLengthsOfRuns, LimitsOfMemoryHoldForAllLengths) {
  const Arguments full = With(kOneRow, {"--method", "full"});
  ExpectTheLossesOfWholeRows(With(full, {"--memory.device", "1000KiB", "--memory.host", "24MiB"}));
  ExpectTheLossesOfWholeRows(With(full, {"--memory.tiers", "host", "--memory.activations", "host"}));
  ExpectTheLossesOfWholeRows(With(kOneRow, {"--memory.weights", "disk", "--memory.disk", "spill"}));
  ExpectTheLossesOfWholeRows(With(kOneRow, {"--memory.weights", "host", "--nprocs", "2", "--mesh", "fsdp=2"}));
}

// Loads and the loss that balances experts come from whichever Program ran; padding counts in neither.
TEST_F(RowLengthsOfRuns, MixturesReportWhatWholeRowsDo) {
  const Arguments mixture = {"--model", kModels + "mixtral", "--router_aux_loss_coef", "0.3"};
  ExpectTheLossesOfWholeRows(With(kOneRow, mixture));
  ExpectTheLossesOfWholeRows(With(With(kOneRow, mixture), {"--nprocs", "2", "--mesh", "fsdp=2"}));
}

// On a model whose steps last long enough to be stopped in one.
TEST_F(RowLengthsOfRuns, AResumeIsExact) {
  const Arguments run = With(kOneRow, {"--model", kModel, "--max_steps", "8", "--eval_strategy", "no", "--lora.dropout",
                                       "0.1", "--eval_data", Path("held.jsonl")});
  ExpectSameIfStopped(folder(), Run("out", run), RowsOfManyLengths(30), "rows.jsonl");
}

TEST_F(RowLengthsOfRuns, ThePlanSaysThem) {
  const auto plan = [&](const Arguments& more) {
    Arguments arguments = Run("out", more);
    arguments[0] = "plan";
    const Ended ended = Temper(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  EXPECT_NE(plan({}).find("lengths     256, 128, 64: a micro-batch runs"), std::string::npos) << plan({});
  const std::string stages = plan({"--nprocs", "2", "--mesh", "pp=2"});
  EXPECT_NE(stages.find("lengths     256, 128, 64: a step runs"), std::string::npos) << stages;
  EXPECT_EQ(plan({"--packing", "true"}).find("lengths "), std::string::npos);
  ExpectEnd(Temper(Run("out", {"--packing", "true", "--pad_to_max_seq_len", "true"})), 2,
            {"packed rows all have max_seq_len tokens: remove it, or set packing: false"});
}

}  // namespace
}  // namespace temper::program::row_lengths_test
