// Weights of rows and messages in a user's data: in the losses of runs, on meshes, after a resume, in `temper plan`.
#include <filesystem>
#include <functional>

#include "temper_program.h"

namespace temper::program::weights_test {
namespace {

class Weights : public Workplace {
 protected:
  // `from` with a weight for each row; none if it is negative.
  void Weigh(const std::string& from, const std::string& to, const std::function<double(int row)>& weight_of) const {
    std::string text;
    std::ifstream in(Path(from));
    int row = 0;
    for (std::string line; std::getline(in, line); ++row) {
      Json json = Json::parse(line);
      if (const double weight = weight_of(row); weight >= 0) json["weight"] = weight;
      text += json.dump() + "\n";
    }
    Spill(to, text);
  }
  void WeighAll(const std::function<double(int row)>& weight_of) const {
    Weigh("d.jsonl", "d_weighed.jsonl", weight_of);
    Weigh("e.jsonl", "e_weighed.jsonl", weight_of);
  }
  static double Mixed(int row) { return row % 3 == 0 ? -1 : 0.25 * (row % 7 + 1); }

  static Arguments Options(const std::string& data, const std::string& eval_data, const std::string& out,
                           const Arguments& more) {
    Arguments all = Train({"--data", data, "--eval_data", eval_data, "--eval_steps", "2", "--output_dir", out,
                           "--dtype", "f32", "--learning_rate", "1e-3", "--per_device_train_batch_size", "2"});
    all = With(all, more);
    return all;
  }
  Ended TrainOn(const std::string& data, const std::string& eval_data, const std::string& out,
                const Arguments& more = {}) const {
    return Temper(Options(data, eval_data, out, more));
  }
  // Every loss of a run by kind and step, and its tokens.
  std::map<std::string, double> LossesOf(const std::string& out) const {
    std::map<std::string, double> losses;
    std::ifstream in(Path(out + "/metrics.jsonl"));
    for (std::string line; std::getline(in, line);) {
      const Json row = Json::parse(line);
      for (const char* key : {"loss", "eval_loss", "tokens", "eval_tokens"}) {
        if (row.contains(key)) losses[fmt::format("{} {}", key, row["step"].dump())] = row[key].get<double>();
      }
    }
    EXPECT_GE(losses.size(), 8u) << out;
    return losses;
  }
  std::string ProgramOf(const std::string& data) const {
    const Ended ended =
        Temper({"plan", "--model", kModel, "--data", data, "--max_seq_len", "96", "--threads", "1", "--program"});
    EXPECT_LT(ended.code, 2) << ended.err;  // 1: the run would be refused, as its data is not there yet
    return ended.out;
  }
};

TEST_F(Weights, OfOneEverywhereChangeNoByte) {
  WeighAll([](int) { return 1; });
  ASSERT_EQ(TrainOn("d.jsonl", "e.jsonl", "plain").code, 0);
  ASSERT_EQ(TrainOn("d_weighed.jsonl", "e_weighed.jsonl", "ones").code, 0);
  EXPECT_EQ(LossesOf("ones"), LossesOf("plain"));
  EXPECT_EQ(Slurp("ones/adapter_model.safetensors"), Slurp("plain/adapter_model.safetensors"));
  EXPECT_EQ(ProgramOf("d_weighed.jsonl"), ProgramOf("d.jsonl"));
}

// A power of two scales every gradient and the sum of weights exactly.
TEST_F(Weights, ThatAreAllTheSameGiveTheSameMeans) {
  WeighAll([](int) { return 0.5; });
  ASSERT_EQ(TrainOn("d.jsonl", "e.jsonl", "plain").code, 0);
  ASSERT_EQ(TrainOn("d_weighed.jsonl", "e_weighed.jsonl", "halves").code, 0);
  EXPECT_EQ(LossesOf("halves"), LossesOf("plain"));
  EXPECT_EQ(Slurp("halves/adapter_model.safetensors"), Slurp("plain/adapter_model.safetensors"));
}

TEST_F(Weights, OfZeroAreLikeMissingRows) {
  const std::string rows = Slurp("d.jsonl");
  Weigh("e.jsonl", "zeros.jsonl", [](int) { return 0; });
  Spill("more.jsonl", rows + Slurp("zeros.jsonl"));
  ASSERT_EQ(TrainOn("d.jsonl", "e.jsonl", "plain").code, 0);
  ASSERT_EQ(TrainOn("more.jsonl", "e.jsonl", "zeros").code, 0);
  EXPECT_EQ(LossesOf("zeros"), LossesOf("plain"));
}

TEST_F(Weights, CountInTheLossEquallyOnEveryMesh) {
  WeighAll(Mixed);
  // The example's tokenizer beside a model whose heads two ranks can share.
  const std::string drawn = CopyModel("drawn");
  std::filesystem::remove(drawn + "/model.safetensors");
  temper::Spill(drawn + "/config.json",
                R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 2048, "hidden_size": 64, "bos_token_id": 0,
                    "eos_token_id": 1, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                    "intermediate_size": 128, "max_position_embeddings": 512, "tie_word_embeddings": false})");
  const Arguments alone = {
      "--model", drawn, "--method", "full", "--from_scratch", "true", "--gradient_accumulation_steps", "2"};
  ASSERT_EQ(TrainOn("d.jsonl", "e.jsonl", "plain", alone).code, 0);
  const Ended ended = TrainOn("d_weighed.jsonl", "e_weighed.jsonl", "alone", alone);
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("with a weight, 0.25 to 1.75"), std::string::npos) << ended.err;
  const auto plain = LossesOf("plain"), expected = LossesOf("alone");
  for (const auto& [name, loss] : expected) {
    if (name.find("tokens") != std::string::npos) {
      EXPECT_EQ(loss, plain.at(name)) << "tokens are counts";
    } else {
      EXPECT_GT(std::abs(loss - plain.at(name)), 1e-4) << name;
    }
  }
  for (const std::string mesh : {"dp=2", "fsdp=2", "tp=2", "cp=2", "pp=2"}) {
    SCOPED_TRACE(mesh);
    const bool data = mesh.find("dp") != std::string::npos;
    const Arguments more = With(
        alone, {"--nprocs", "2", "--mesh", mesh, "--overwrite", "--gradient_accumulation_steps", data ? "1" : "2"});
    const Ended several = TrainOn("d_weighed.jsonl", "e_weighed.jsonl", "several", more);
    ASSERT_EQ(several.code, 0) << several.err;
    const auto losses = LossesOf("several");
    ASSERT_EQ(losses.size(), expected.size());
    for (const auto& [name, loss] : losses) EXPECT_NEAR(loss, expected.at(name), 1e-5 * expected.at(name)) << name;
  }
}

TEST_F(Weights, InAPlanAreThoseOfTheRun) {
  WeighAll(Mixed);
  const std::string plain = ProgramOf("d.jsonl"), weighed = ProgramOf("d_weighed.jsonl");
  EXPECT_EQ(plain.find("\"weight\""), std::string::npos);
  EXPECT_NE(weighed.find("\"weight\""), std::string::npos);
  EXPECT_EQ(ProgramOf("not_there_yet.jsonl"), plain);
}

TEST_F(Weights, AStoppedRunResumesWithTheSameBits) {
  WeighAll(Mixed);
  const Arguments saving = {"--save_steps", "4", "--max_steps", "40"};
  ASSERT_EQ(TrainOn("d_weighed.jsonl", "e_weighed.jsonl", "whole", saving).code, 0);
  Process first(Command(Options("d_weighed.jsonl", "e_weighed.jsonl", "parts", saving)), folder());
  ASSERT_TRUE(first.ReadErrUntil("step 10  eval_loss"));
  first.Signal(SIGTERM);
  ASSERT_EQ(first.Wait().code, 75);
  Arguments on = saving;
  on.push_back("--resume");
  // Other weights are other data.
  const std::string weighed = Slurp("d_weighed.jsonl");
  Weigh("d.jsonl", "d_weighed.jsonl", [](int row) { return 0.5 + row % 2; });
  ExpectEnd(TrainOn("d_weighed.jsonl", "e_weighed.jsonl", "parts", on), 2, {"data"});
  Spill("d_weighed.jsonl", weighed);
  const Ended ended = TrainOn("d_weighed.jsonl", "e_weighed.jsonl", "parts", on);
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(LossesOf("parts"), LossesOf("whole"));
  EXPECT_EQ(Slurp("parts/adapter_model.safetensors"), Slurp("whole/adapter_model.safetensors"));
}

TEST_F(Weights, AreInTheLossThatEvalPrints) {
  // For two rows, alone and together: the weighted mean.
  Spill("one.jsonl", FirstLines(Path("e.jsonl"), 1));
  Spill("other.jsonl", Slurp("e.jsonl").substr(Slurp("one.jsonl").size()));
  const auto eval = [&](const std::string& data) {
    const Ended ended = Temper({"eval", "--model", kModel, "--data", data, "--threads", "1", "--dtype", "f32"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Json::parse(ended.out);
  };
  const Json one = eval("one.jsonl"), other = eval("other.jsonl");
  Weigh("e.jsonl", "both.jsonl", [](int row) { return row == 0 ? 3 : 0.5; });
  const Json both = eval("both.jsonl");
  const double n1 = one["tokens"].get<double>(), n2 = other["tokens"].get<double>();
  EXPECT_EQ(both["tokens"].get<double>(), n1 + n2);
  const double want =
      (3 * n1 * one["eval_loss"].get<double>() + 0.5 * n2 * other["eval_loss"].get<double>()) / (3 * n1 + 0.5 * n2);
  EXPECT_NEAR(both["eval_loss"].get<double>(), want, 1e-6 * want);
}

TEST_F(Weights, InvalidOnesAreErrorsThatNameTheRow) {
  Spill("bad.jsonl", FirstLines(Path("d.jsonl"), 2) + R"({"prompt": "a", "completion": "b", "weight": -1})" + "\n");
  ExpectEnd(Temper(Train({"--data", "bad.jsonl"})), 1, {"bad.jsonl line 3: 'weight' is -1", "from 0 to 256"});
}

}  // namespace
}  // namespace temper::program::weights_test
