// Runs that train another base than the model they name, which they make beside their folder: with rows for new tokens,
// or without what adapters begin as.
#include <cmath>

#include "file_tensors.h"

namespace temper::program::other_base_test {
namespace {

class OtherBase : public Workplace {
 protected:
  static constexpr char kTokens[] = "<|note|>\n<|end_note|>\n";

  Arguments Steps(const Arguments& more) const {
    return With(Train({"--dtype", "f32", "--lr_scheduler_type", "constant", "--overwrite"}), more);
  }
  void ExpectRefused(const Arguments& more, const std::string& wanted) const {
    const Ended ended = Temper(Steps(more));
    EXPECT_NE(ended.code, 0);
    EXPECT_NE(ended.err.find(wanted), std::string::npos) << ended.err;
  }
};

// scale * B A of a module, [out, in].
std::vector<double> ProductOf(const Tensors& adapter, const std::string& module, double scale) {
  const auto& a = adapter.at("base_model.model." + module + ".lora_A.weight");
  const auto& b = adapter.at("base_model.model." + module + ".lora_B.weight");
  const std::vector<float> as = Floats(a), bs = Floats(b);
  const int64_t r = a.first.shape[0], in = a.first.shape[1], out = b.first.shape[0];
  std::vector<double> product(static_cast<size_t>(out * in));
  for (int64_t i = 0; i < out; ++i) {
    for (int64_t k = 0; k < r; ++k) {
      const double x = scale * static_cast<double>(bs[static_cast<size_t>(i * r + k)]);
      for (int64_t c = 0; c < in; ++c) {
        product[static_cast<size_t>(i * in + c)] += x * static_cast<double>(as[static_cast<size_t>(k * in + c)]);
      }
    }
  }
  return product;
}

double Norm(const std::vector<double>& x) {
  double squares = 0;
  for (const double e : x) squares += e * e;
  return std::sqrt(squares);
}

// tests/parity/make_initial_goldens.py: losses and norms of 20 steps, and what each module begins as and becomes. The
// base that is left and the first A and B together are the model.
TEST_F(OtherBase, AdaptersThatBeginAsAPartOfTheirWeightsTrainAsPeftsDo) {
  const Json golden = Json::parse(temper::Slurp(kGoldens + "/initial.json"));
  std::string rows;
  for (const Json& row : golden["rows"]) rows += Json{{"text", row}}.dump() + "\n";
  Spill("golden.jsonl", rows);
  const Tensors model = Read(kModel + "/model.safetensors");
  for (const auto& [name, wanted] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const std::string out = "out_" + name;
    const Ended ended = Temper(Steps({"--data", "golden.jsonl", "--max_seq_len", "512", "--max_steps", "20",
                                      "--learning_rate", golden["learning_rate"].dump(), "--lora.init_lora_weights",
                                      name, "--lora.r", wanted["r"].dump(), "--lora.alpha", wanted["lora_alpha"].dump(),
                                      "--lora.target_modules", "q_proj,k_proj,down_proj", "--output_dir", out}));
    ASSERT_EQ(ended.code, 0) << ended.err;
    const std::vector<Json> steps = Lines(Slurp(out + "/metrics.jsonl"));
    ASSERT_EQ(steps.size(), wanted["steps"].size());
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const auto& [report, value] : wanted["steps"][i].items()) {
        const double number = value.get<double>();
        EXPECT_NEAR(steps[i][report].get<double>(), number, 1e-4 * number) << "step " << i + 1 << " " << report;
      }
    }
    const double scale = wanted["lora_alpha"].get<double>() / wanted["r"].get<double>();
    const Tensors first = Read(Path(out + "-base/first_adapter/adapter_model.safetensors")),
                  last = Read(Path(out + "/adapter_model.safetensors")),
                  base = Read(Path(out + "-base/model.safetensors"));
    for (const auto& [module, of_module] : wanted["modules"].items()) {
      const std::vector<double> began = ProductOf(first, module, scale);
      std::vector<double> change = ProductOf(last, module, scale);
      double sum = 0, off = 0;
      const std::vector<float> left = Floats(base.at(module + ".weight")), whole = Floats(model.at(module + ".weight"));
      ASSERT_EQ(left.size(), began.size());
      for (size_t i = 0; i < change.size(); ++i) {
        change[i] -= began[i];
        sum += began[i];
        off = std::max(off, std::fabs(static_cast<double>(left[i]) + began[i] - static_cast<double>(whole[i])));
      }
      const double l2 = of_module["first_l2"].get<double>(), moved = of_module["change_l2"].get<double>();
      EXPECT_NEAR(Norm(began), l2, 1e-5 * l2) << module;
      EXPECT_NEAR(sum, of_module["first_sum"].get<double>(), 1e-4 * l2) << module;
      EXPECT_NEAR(Norm(change), moved, 1e-3 * moved) << module;
      EXPECT_LE(off, 1e-5) << module;
    }
    const Json config = Json::parse(Slurp(out + "/adapter_config.json"));
    EXPECT_EQ(config["base_model_name_or_path"], Path(out + "-base"));
    EXPECT_EQ(config["init_lora_weights"], true) << "PEFT would take a part of the base again";
  }
}

// The rows of the new tokens are trained beside the adapter, which a model with them loads; a second start finds what
// the first has made.
TEST_F(OtherBase, NewTokensGetRowsThatAreTrained) {
  Spill("tokens.txt", kTokens);
  Spill("chat.jsonl", R"({"text": "<|note|> hello <|end_note|> yes"})"
                      "\n"
                      R"({"text": "<|note|> more <|end_note|> no"})"
                      "\n");
  const Arguments run = Steps({"--add_tokens", "tokens.txt", "--data", "chat.jsonl", "--max_steps", "4",
                               "--learning_rate", "1e-2", "--max_seq_len", "48"});
  const Ended ended = Temper(run);
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("new tokens  2, numbers 2048 to 2049"), std::string::npos) << ended.err;
  const Json base = Json::parse(Slurp("out-base/config.json"));
  EXPECT_EQ(base["vocab_size"], 2050);
  const Json config = Json::parse(Slurp("out/adapter_config.json"));
  EXPECT_EQ(config["base_model_name_or_path"], Path("out-base"));
  EXPECT_EQ(config["trainable_token_indices"], Json::parse("[2048, 2049]"));
  const Tensors adapter = Read(Path("out/adapter_model.safetensors"));
  const std::vector<float> rows =
      Floats(adapter.at("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"));
  const std::vector<float> table = Floats(Read(Path("out-base/model.safetensors")).at("model.embed_tokens.weight"));
  ASSERT_EQ(rows.size(), 2u * 160);
  EXPECT_GT(ChangeOf({table.end() - 2 * 160, table.end()}, rows).l2, 1e-2) << "they were not trained";
  const Ended answer = Temper({"generate", "out", "--prompt", "<|note|> hello", "--max_new_tokens", "2"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  const Ended again = Temper(run);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err.find("new tokens  2,"), std::string::npos) << "it was made anew";
  // From run.yaml, with more steps; and of all rows, as a whole model.
  Arguments on = {"train", "out/run.yaml", "--resume", "--max_steps", "6"};
  const Ended resumed = Temper(on);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("at step 4"), std::string::npos) << resumed.err;
  const Ended full = Temper(With(run, {"--method", "full", "--output_dir", "full", "--max_steps", "2"}));
  ASSERT_EQ(full.code, 0) << full.err;
  EXPECT_EQ(Json::parse(Slurp("full/config.json"))["vocab_size"], 2050);
  EXPECT_EQ(Read(Path("full/model.safetensors")).at("model.embed_tokens.weight").first.shape, (Shape{2050, 160}));
}

TEST_F(OtherBase, WhatCannotBeIsRefusedInALine) {
  Spill("tokens.txt", kTokens);
  ExpectRefused({"--lora.init_lora_weights", "eva"},
                "lora.init_lora_weights: 'eva' is not known: give true, pissa, pissa_niter_4 or olora");
  ExpectRefused({"--lora.init_lora_weights", "pissa", "--lora.use_dora", "true"},
                "begins with the norms of whole weights");
  ExpectRefused({"--lora.init_lora_weights", "pissa", "--method", "full"}, "method: full has no adapters");
  ExpectRefused({"--lora.init_lora_weights", "olora", "--add_tokens", "tokens.txt"}, "makes a base of its own");
  ExpectRefused({"--lora.init_lora_weights", "olora", "--lora.target_modules", "lm_head"}, "the output head");
  ExpectRefused({"--lora.init_lora_weights", "olora", "--lora.r", "64", "--lora.target_modules", "k_proj"},
                "its rank is above the dims of the weight");
  ExpectRefused({"--add_tokens", "tokens.txt", "--method", "full", "--from_scratch"}, "from_scratch draws all rows");
  ExpectRefused({"--add_tokens", "absent.txt"}, "absent.txt");
  TEMPER_CHECK(PosixEnv().CreateFolders(Path("out-base")).ok());
  Spill("out-base/mine.txt", "mine");
  ExpectRefused(
      {"--add_tokens", "tokens.txt"},
      "add_tokens writes the base of this run to out-base, which is there and holds something else: remove it");
  EXPECT_EQ(Slurp("out-base/mine.txt"), "mine");
}

}  // namespace
}  // namespace temper::program::other_base_test
