// Mixtures of experts: the loss that balances experts, and what a run says of their loads.
#include <cmath>

#include "temper_program.h"

namespace temper::program::balance_test {
namespace {

const std::string kGoldens = std::string(kProjectFolder) + "/tests/parity/goldens";

class Balance : public Workplace {
 protected:
  Balance() : golden_(Json::parse(temper::Slurp(kGoldens + "/balance.json"))) {
    std::string rows;
    for (const Json& row : golden_["rows"]) rows += Json{{"input_ids", row}}.dump() + "\n";
    Spill("rows.jsonl", rows);
  }

  // Rows of 32 tokens, of which one is padding behind each of the two: all of them, or one in each micro-batch.
  static Arguments TrainOn(const std::string& model, int accumulation, const Arguments& more) {
    return With(Train({"--model",
                       kGoldens + "/models/" + model,
                       "--data",
                       "rows.jsonl",
                       "--method",
                       "full",
                       "--dtype",
                       "f32",
                       "--max_seq_len",
                       "32",
                       "--per_device_train_batch_size",
                       accumulation == 1 ? "2" : "1",
                       "--gradient_accumulation_steps",
                       accumulation == 1 ? "1" : "2",
                       "--learning_rate",
                       "3e-3",
                       "--lr_scheduler_type",
                       "constant",
                       "--weight_decay",
                       "0",
                       "--overwrite"}),
                more);
  }
  // Rows of metrics.jsonl that have a loss.
  std::vector<Json> Steps() const {
    std::vector<Json> rows;
    std::ifstream in(JoinPath(Path("out"), "metrics.jsonl"));
    for (std::string line; std::getline(in, line);) {
      if (Json row = Json::parse(line); row.contains("loss")) rows.push_back(std::move(row));
    }
    return rows;
  }

  const Json golden_;
};

// tests/parity/make_balance_goldens.py: four steps of transformers' Trainer and of TRL's SFTTrainer on both rows.
TEST_F(Balance, StepsAreThoseOfTransformersAndTrl) {
  for (const auto& [name, wanted] : golden_["cases"].items()) {
    SCOPED_TRACE(name);
    const int accumulation = wanted["accumulation"].get<int>();
    // Trainer adds the losses of micro-batches up, TRL and we take their mean.
    const bool sum = name.starts_with("trainer");
    const double coef = golden_["coefficient"].get<double>() * (sum ? accumulation : 1);
    Arguments run = TrainOn(wanted["model"], accumulation, {"--router_aux_loss_coef", fmt::format("{}", coef)});
    if (wanted.contains("adapter")) {
      run =
          With(run, {"--method", "lora", "--adapter", kGoldens + "/adapters/" + wanted["adapter"].get<std::string>()});
    }
    const Ended ended = Temper(run);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const std::vector<Json> steps = Steps();
    ASSERT_EQ(steps.size(), wanted["steps"].size());
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const auto& [report, value] : wanted["steps"][i].items()) {
        // f32 on both sides; differences of the first step grow with the weights that it makes.
        EXPECT_NEAR(steps[i][report].get<double>(), value.get<double>(), 2e-4 * value.get<double>())
            << "step " << i + 1 << " " << report;
      }
    }
  }
}

// Of the larger loss of all tokens and of each micro-batch alone, whoever has its tokens.
TEST_F(Balance, LossesDoNotDependOnTheMesh) {
  const auto steps = [&](const Arguments& more) {
    const Ended ended = Temper(TrainOn("mixtral", 1, With({"--router_aux_loss_coef", "0.3"}, more)));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Steps();
  };
  const std::vector<Json> expected = steps({});
  ASSERT_EQ(expected.size(), 4u);
  for (const std::string mesh : {"dp=2", "fsdp=2", "tp=2", "cp=2", "pp=2"}) {
    SCOPED_TRACE(mesh);
    const bool own_rows = mesh == "dp=2" || mesh == "fsdp=2";
    const std::vector<Json> got =
        steps({"--nprocs", "2", "--mesh", mesh, "--per_device_train_batch_size", own_rows ? "1" : "2"});
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      for (const char* report : {"loss", "aux_loss", "grad_norm", "experts/largest_share", "experts/unused"}) {
        const double want = expected[i].at(report).get<double>();
        EXPECT_NEAR(got[i].at(report).get<double>(), want, 1e-4 * want) << "step " << i + 1 << " " << report;
      }
    }
  }
}

TEST_F(Balance, ConfigJsonAsksForItAndTheOptionHasTheLastWord) {
  const std::string model = Path("model");
  TEMPER_CHECK(PosixEnv().CreateFolders(model).ok());
  const std::string from = kGoldens + "/models/mixtral/";
  temper::Spill(model + "/model.safetensors", temper::Slurp(from + "model.safetensors"));
  Json config = Json::parse(temper::Slurp(from + "config.json"));
  config["output_router_logits"] = true;
  config["router_aux_loss_coef"] = 0.3;
  temper::Spill(model + "/config.json", config.dump());
  const auto first = [&](const Arguments& more) {
    const Ended ended = Temper(With(TrainOn("mixtral", 1, {"--model", model, "--max_steps", "1"}), more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Steps().at(0);
  };
  const Json asked = first({}), off = first({"--router_aux_loss_coef", "0"});
  const double aux = asked.at("aux_loss").get<double>();
  EXPECT_GT(aux, 2) << "two experts of a token: it is 2 where all are used alike";
  EXPECT_FALSE(off.contains("aux_loss"));
  EXPECT_NEAR(asked["loss"].get<double>(), off["loss"].get<double>() + 0.3 * aux, 1e-5);
  EXPECT_NEAR(first({"--router_aux_loss_coef", "0.1"})["loss"].get<double>(), off["loss"].get<double>() + 0.1 * aux,
              1e-5);
  ExpectEnd(Temper(Train({"--router_aux_loss_coef", "0.1", "--overwrite"})), 2,
            {"router_aux_loss_coef is 0.1, but LlamaForCausalLM has no experts that a loss could balance: remove it"});
}

// tests/parity/make_balance_goldens.py counts them by transformers' routers.
TEST_F(Balance, LoadsOfExpertsAreReported) {
  for (const auto& [model, loads] : golden_["loads"].items()) {
    SCOPED_TRACE(model);
    Json tokens = golden_["rows"][1];
    tokens.erase(tokens.begin() + loads["tokens"].get<std::ptrdiff_t>(), tokens.end());
    Spill("few.jsonl", Json{{"input_ids", tokens}}.dump());
    const Ended ended = Temper(TrainOn(model, 1, {"--data", "few.jsonl", "--max_steps", "1", "--tensorboard", "true"}));
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json step = Steps().at(0);
    EXPECT_NEAR(step.at("experts/largest_share").get<double>(), loads["largest_share"].get<double>(), 1e-6);
    EXPECT_EQ(step.at("experts/unused").get<double>(), loads["unused"].get<double>());
    EXPECT_FALSE(step.contains("aux_loss"));
    EXPECT_NE(ended.err.find("experts/largest_share"), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace temper::program::balance_test
