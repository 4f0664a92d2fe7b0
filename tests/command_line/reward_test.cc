// Reward models (task reward): `temper train` on pairs of answers, and what becomes of the head.
#include <fmt/ranges.h>

#include <cmath>

#include "temper_program.h"

namespace temper::program::reward_test {
namespace {

const std::string kParity = std::string(kProjectFolder) + "/tests/parity/goldens";

class RewardModel : public Workplace {
 protected:
  RewardModel() {
    std::string pairs;
    for (int i = 0; i < 24; ++i) {
      pairs +=
          fmt::format(R"({{"prompt": "What is {} plus {}?", "chosen": " It is {}.", "rejected": " It might be {}, )"
                      R"(but who knows?", "margin": {}}})",
                      i, 2 * i, 3 * i, i + 7, 0.1 * (i % 3)) +
          "\n";
    }
    Spill("pairs.jsonl", pairs);
  }

  static Arguments TrainOnRanks(const Arguments& more) {
    return With(Train({"--data", "pairs.jsonl", "--task", "reward", "--dtype", "f32", "--learning_rate", "3e-3",
                       "--max_seq_len", "128", "--gradient_accumulation_steps", "4"}),
                more);
  }
};

TEST_F(RewardModel, LearnsToRewardTheChosenAnswers) {
  for (const char* method : {"lora", "full"}) {
    SCOPED_TRACE(method);
    const Ended ended = Temper(TrainOnRanks(
        {"--method", method, "--max_steps", "8", "--eval_fraction", "0.25", "--learning_rate", "1e-3", "--overwrite"}));
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json evaluation = Rows(Path("out")).at(0);
    EXPECT_EQ(evaluation["eval_accuracy"], 1);
    EXPECT_GT(evaluation["eval_margin"].get<double>(), 0.3);
    EXPECT_NEAR(evaluation["eval_margin"].get<double>(),
                evaluation["eval_rewards/chosen"].get<double>() - evaluation["eval_rewards/rejected"].get<double>(),
                1e-4);
    EXPECT_EQ(Json::parse(Slurp("out/config.json"))["num_labels"], 1);
    Spill("answers.jsonl",
          "{\"text\": \"What is 2 plus 3? It is 5.\"}\n{\"text\": \"What is 2 plus 3? It might be 9, but "
          "who knows?\"}\n");
    ASSERT_EQ(Temper({"export", "out", "--output_dir", "exported", "--overwrite"}).code, 0);
    for (const char* model : {"out", "exported"}) {
      SCOPED_TRACE(model);
      const Ended scored = Temper({"score", model, "--data", "answers.jsonl", "--dtype", "f32"});
      ASSERT_EQ(scored.code, 0) << scored.err;
      const std::vector<Json> lines = Lines(scored.out);
      ASSERT_EQ(lines.size(), 2u);
      EXPECT_GT(lines[0]["reward"].get<double>(), lines[1]["reward"].get<double>());
      const Ended evaluated = Temper({"eval", model, "--data", "pairs.jsonl", "--dtype", "f32"});
      ASSERT_EQ(evaluated.code, 0) << evaluated.err;
      EXPECT_EQ(Json::parse(evaluated.out)["accuracy"], 1);
      ExpectEnd(Temper({"score", model, "--data", "pairs.jsonl"}), 1, {"temper eval measures a reward model on pairs"});
    }
  }
}

// The base's file has the table that its head is tied to under the head's name alone, which a model of rewards lacks.
TEST_F(RewardModel, ATiedTableIsReadUnderTheNameOfTheHeadOfWords) {
  CopyModel("renamed");
  const std::string table = "\"model.embed_tokens.weight\":", head = "\"lm_head.weight\":";
  std::string weights = Slurp("renamed/model.safetensors");
  const size_t at = weights.find(table);
  ASSERT_NE(at, weights.npos);
  Spill("renamed/model.safetensors",
        weights.replace(at, table.size(), head + std::string(table.size() - head.size(), ' ')));
  for (const char* method : {"lora", "full"}) {
    SCOPED_TRACE(method);
    std::vector<Json> losses;
    for (const std::string& model : {kModel, std::string("renamed")}) {
      const Ended ended =
          Temper(TrainOnRanks({"--model", model, "--method", method, "--max_steps", "2", "--overwrite"}));
      ASSERT_EQ(ended.code, 0) << ended.err;
      for (const Json& row : Rows(Path("out"))) losses.push_back(row["loss"]);
    }
    ASSERT_EQ(losses.size(), 4u);
    EXPECT_EQ(losses[0], losses[2]);
    EXPECT_EQ(losses[1], losses[3]);
    ASSERT_EQ(Temper({"export", "out", "--output_dir", "exported", "--overwrite"}).code, 0);
    const std::string exported = Slurp("exported/model.safetensors");
    EXPECT_NE(exported.find(table), exported.npos) << "as transformers calls it";
    EXPECT_EQ(exported.find(head), exported.npos);
  }
}

// tests/parity/make_head_goldens.py: five steps of TRL's RewardTrainer on all pairs at once, continuing an adapter or
// in full, and the rewards of the chosen answers then.
TEST_F(RewardModel, StepsAreThoseOfTrl) {
  const Json golden = Json::parse(temper::Slurp(kParity + "/reward.json"));
  const std::string with_head = ModelWithHead("with_head", kParity + "/heads/reward.safetensors", {"LABEL_0"});
  for (const auto& [name, wanted] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    std::string rows, chosen;
    for (const Json& pair : wanted["pairs"]) {
      rows += pair.dump() + "\n";
      chosen += Json({{"text", pair["prompt"].get<std::string>() + pair["chosen"].get<std::string>()}}).dump() + "\n";
    }
    Spill("golden.jsonl", rows);
    Spill("chosen.jsonl", chosen);
    Arguments run = TrainOnRanks({"--data", "golden.jsonl", "--max_seq_len", "512", "--gradient_accumulation_steps",
                                  "1", "--max_steps", "5", "--lr_scheduler_type", "constant", "--overwrite",
                                  "--learning_rate", wanted["learning_rate"].dump()});
    run = With(run, wanted.value("full", false) ? Arguments{"--method", "full", "--model", with_head}
                                                : Arguments{"--adapter", kParity + "/adapters/reward"});
    if (wanted.contains("center_rewards_coefficient")) {
      run = With(run, {"--reward.center_rewards_coefficient", wanted["center_rewards_coefficient"].dump()});
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
    const Ended scored = Temper({"score", "out/checkpoint-5", "--data", "chosen.jsonl", "--dtype", "f32"});
    ASSERT_EQ(scored.code, 0) << scored.err;
    const std::vector<Json> lines = Lines(scored.out);
    ASSERT_EQ(lines.size(), wanted["rewards"].size());
    for (size_t s = 0; s < lines.size(); ++s) {
      const double number = wanted["rewards"][s].get<double>();
      EXPECT_NEAR(lines[s]["reward"].get<double>(), number, 1e-4 * std::max(1.0, std::fabs(number))) << s;
    }
  }
}

TEST_F(RewardModel, AStoppedRunEndsWithTheSameBytes) {
  for (const char* method : {"full", "lora"}) {
    SCOPED_TRACE(method);
    const Arguments run = TrainOnRanks({"--method", method, "--max_steps", "8", "--save_steps", "2", "--logging_steps",
                                        "3", "--eval_fraction", "0.25", "--learning_rate", "1e-4"});
    ExpectSameIfStopped(Path(method), run, Slurp("pairs.jsonl"), "pairs.jsonl");
  }
}

// Micro-batches, recomputation and the ranks of a mesh see the same pairs.
TEST_F(RewardModel, LossesDoNotDependOnHowAStepIsComputed) {
  const auto losses = [&](const Arguments& more) {
    const Ended ended =
        Temper(With(TrainOnRanks({"--overwrite", "--packing", "false", "--learning_rate", "1e-4"}), more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Losses(Path("out"));
  };
  const auto expected = losses({});
  ASSERT_EQ(expected.size(), 4u);
  for (const Arguments& other : {Arguments{"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2",
                                           "--memory.recompute", "block"},
                                 Arguments{"--nprocs", "2", "--mesh", "fsdp=2", "--gradient_accumulation_steps", "2"},
                                 Arguments{"--nprocs", "2", "--mesh", "dp=2", "--gradient_accumulation_steps", "2"},
                                 Arguments{"--nprocs", "2", "--mesh", "pp=2"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(other, " ")));
    for (const auto& [step, loss] : losses(other)) EXPECT_NEAR(loss, expected.at(step), 1e-5) << step;
  }
}

// All pairs in each step: packed into rows of 512 tokens, or one a row.
TEST_F(RewardModel, PackedPairsAreAsOnesOfTheirOwn) {
  Spill("few.jsonl", FirstLines(Path("pairs.jsonl"), 6));
  const auto losses = [&](const Arguments& more) {
    const Ended ended =
        Temper(With(TrainOnRanks({"--data", "few.jsonl", "--overwrite", "--learning_rate", "1e-4"}), more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Losses(Path("out"));
  };
  const auto alone = losses({"--packing", "false", "--gradient_accumulation_steps", "6"}),
             packed = losses({"--max_seq_len", "512", "--gradient_accumulation_steps", "1"});
  for (const auto& [step, loss] : packed) EXPECT_NEAR(loss, alone.at(step), 1e-5) << step;
}

// Tensor ranks share tokens, and see all pairs.
TEST_F(RewardModel, TensorRanksSeeTheSamePairs) {
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
    const Ended ended =
        Temper(With(TrainOnRanks({"--model", model, "--from_scratch", "--method", "full", "--overwrite"}), more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    auto all = Losses(Path("out"));
    all[-1] = Rows(Path("out")).at(0)["grad_norm"].get<double>();
    return all;
  };
  const auto expected = losses({});
  for (const char* parallel : {"true", "false"}) {
    SCOPED_TRACE(parallel);
    const auto got = losses({"--nprocs", "2", "--mesh", "tp=2", "--mesh.sequence_parallel", parallel});
    ASSERT_EQ(got.size(), 5u);
    for (const auto& [step, loss] : got) EXPECT_NEAR(loss, expected.at(step), 1e-5) << step;
  }
}

TEST_F(RewardModel, RefusesWhatItHasNoUseFor) {
  ExpectEnd(Temper(TrainOnRanks({"--data", "d.jsonl"})), 1, {"d.jsonl line 1: no pair of answers. The row has "});
  ExpectEnd(Temper(Train({"--data", "pairs.jsonl"})), 1, {"add --task dpo, simpo, orpo or reward"});
  ExpectEnd(Temper(TrainOnRanks({"--mesh", "cp=2", "--nprocs", "2"})), 2, {"task: reward has no use for mesh.cp"});
  ExpectEnd(Temper(TrainOnRanks({"--dpo.beta", "0.2"})), 2, {"dpo.* has no effect on task: reward"});
  ExpectEnd(Temper(Train({"--reward.center_rewards_coefficient", "0.2"})), 2,
            {"reward.* has no effect on task: sft: remove it, or set task: reward"});
  Spill("bad.jsonl", "{\"chosen\": \"a b\", \"rejected\": \"a c\", \"margin\": \"much\"}\n");
  ExpectEnd(Temper(TrainOnRanks({"--data", "bad.jsonl"})), 1,
            {"bad.jsonl line 1: 'margin' should be a number but is "});
  Spill("large.jsonl", "{\"chosen\": \"a b\", \"rejected\": \"a c\", \"margin\": 1e300}\n");
  ExpectEnd(Temper(TrainOnRanks({"--data", "large.jsonl"})), 1, {"large.jsonl line 1: 'margin' 1e+300 is too large"});
}

}  // namespace
}  // namespace temper::program::reward_test
