// LoRA on a base that is kept in int8 or nf4, for users: its memory, its loss, resuming, the disk, meshes, export, and
// what is refused.
#include <cmath>
#include <filesystem>

#include "checkpoint/load_weights.h"
#include "format/model_weights.h"
#include "temper_program.h"
#include "tensor/element_format.h"

namespace temper::program {
namespace {

class BaseDtype : public Workplace {
 protected:
  static Arguments On(const char* base, const Arguments& more) {
    return With(Train({"--dtype", "bf16", "--base_dtype", base, "--learning_rate", "1e-3"}), more);
  }
  std::map<int64_t, double> LossesOf(const Arguments& options) {
    const Ended ended = Temper(With(options, {"--overwrite", "true", "--output_dir", "curve"}));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Losses(Path("curve"));
  }
};

// Each weight of a linear module takes the bytes of its rows, instead of two bytes an element.
TEST_F(BaseDtype, APlanShowsTheBytesOfQuantisedRows) {
  const auto weights = [&](const char* base) {
    const Ended plan = Temper({"plan", "--json", "--model", kModel, "--dtype", "bf16", "--base_dtype", base,
                               "--threads", "1", "--rates", "typical", "--max_seq_len", "96"});
    EXPECT_EQ(plan.code, 0) << plan.err;
    return Json::parse(plan.out)["bytes"]["device"]["weights"].get<int64_t>();
  };
  const Json config = Json::parse(temper::Slurp(kModel + "/config.json"));
  const int64_t hidden = config["hidden_size"], ffn = config["intermediate_size"], head = config["head_dim"];
  const int64_t heads = config["num_attention_heads"], kv_heads = config["num_key_value_heads"];
  const int64_t in_bf16 = weights("auto");
  for (const ElementFormat format : {ElementFormat::Int8Rows(), ElementFormat::Nf4()}) {
    int64_t saved = 0;
    for (const auto& [rows, columns] : {std::pair{heads * head, hidden},
                                        {kv_heads * head, hidden},
                                        {kv_heads * head, hidden},
                                        {hidden, heads * head},
                                        {ffn, hidden},
                                        {ffn, hidden},
                                        {hidden, ffn}}) {
      saved += rows * (2 * columns - format.RowBytes(columns));
    }
    EXPECT_EQ(in_bf16 - weights(std::string(ToString(format)).c_str()),
              saved * config["num_hidden_layers"].get<int64_t>());
  }
}

TEST_F(BaseDtype, TheDiskAndMeshesHaveTheLossesOfOneRankInMemory) {
  for (const char* base : {"int8", "nf4"}) {
    SCOPED_TRACE(base);
    const auto expected = LossesOf(On(base, {"--gradient_accumulation_steps", "2"}));
    ASSERT_EQ(expected.size(), 4u);
    EXPECT_LT(expected.at(4), expected.at(1));
    EXPECT_EQ(LossesOf(On(
                  base, {"--gradient_accumulation_steps", "2", "--memory.weights", "disk", "--memory.disk", "spill"})),
              expected)
        << "weights in the spill file";
    for (const auto& [mesh, accumulation] : {std::pair{"fsdp=2", "1"}, {"cp=2", "2"}, {"pp=2", "2"}}) {
      SCOPED_TRACE(mesh);
      const auto losses =
          LossesOf(On(base, {"--nprocs", "2", "--mesh", mesh, "--gradient_accumulation_steps", accumulation}));
      ASSERT_EQ(losses.size(), expected.size());
      // Sums in another order, in bf16.
      for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 0.01 * expected.at(step)) << step;
    }
  }
}

// Export reads the base's folder, not what the run has in memory: where nothing was learnt, nothing changes.
TEST_F(BaseDtype, ExportMergesIntoTheOriginalWeights) {
  const Ended trained = Temper(On("nf4", {"--learning_rate", "0"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Ended exported = Temper({"export", "--model", "out", "--output_dir", "merged"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const auto files = Must(ModelWeights::Open(PosixEnv(), Path("merged")));
  const auto original = Must(ModelWeights::Open(PosixEnv(), kModel));
  for (const ModelWeights::Entry& entry : original.entries()) {
    const ModelWeights::Entry merged = files.Find(entry.tensor->name);
    ASSERT_NE(merged.tensor, nullptr) << entry.tensor->name;
    EXPECT_TRUE(Must(HaveSameElements(merged, entry))) << entry.tensor->name;
  }
}

TEST_F(BaseDtype, EvaluationAndDecodingReadIt) {
  for (const char* base : {"int8", "nf4"}) {
    SCOPED_TRACE(base);
    ASSERT_EQ(Temper(On(base, {"--eval_data", "e.jsonl", "--eval_steps", "4", "--overwrite", "true"})).code, 0);
    double at_the_end = NAN;
    std::ifstream metrics(Path("out/metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
      const Json row = Json::parse(line);
      if (row.contains("eval_loss")) at_the_end = row["eval_loss"];
    }
    const auto eval = [&](const char* kept_as) {
      const Ended ended = Temper({"eval", "--model", "out", "--data", "e.jsonl", "--max_seq_len", "96", "--dtype",
                                  "bf16", "--base_dtype", kept_as, "--threads", "1"});
      EXPECT_EQ(ended.code, 0) << ended.err;
      return Json::parse(ended.out)["eval_loss"].get<double>();
    };
    EXPECT_NEAR(eval(base), at_the_end, 1e-6 * at_the_end);
    EXPECT_NE(eval("auto"), eval(base));
    const Ended answer = Temper({"generate", "--model", "out", "--base_dtype", base, "--prompt", "Hello", "--threads",
                                 "1", "--max_new_tokens", "8"});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_FALSE(answer.out.empty());
  }
}

TEST_F(BaseDtype, WhatCannotBeIsRefusedInALine) {
  ExpectEnd(Temper(Train({"--method", "full", "--base_dtype", "nf4"})), 2,
            {"base_dtype is for frozen weights, but method is full", "set method: lora"});
  ExpectEnd(Temper(On("int8", {"--dtype", "f32"})), 2, {"base_dtype: int8 is computed in bf16, but dtype is f32"});
  ExpectEnd(Temper({"generate", "--model", kModel, "--base_dtype", "nf4", "--dtype", "f32", "--prompt", "Hello"}), 2,
            {"base_dtype: nf4 is computed in bf16"});
  ExpectEnd(Temper(Train({"--load_in_4bit", "true"})), 2, {"base_dtype: nf4"});
  ASSERT_EQ(Temper(On("int8", {"--save_steps", "2"})).code, 0);
  ASSERT_TRUE(PosixEnv().RemoveTree(Path("out/checkpoint-4")).ok());
  ExpectEnd(
      Temper(Train({"--dtype", "bf16", "--learning_rate", "1e-3", "--save_steps", "2", "--resume=out/checkpoint-2"})),
      2, {"base_dtype int8 (now auto)"});
}

TEST_F(BaseDtype, AWeightThatIsNotFiniteIsNamed) {
  const std::string model = CopyModel("damaged");
  const std::string path = model + "/model.safetensors";
  std::string bytes = temper::Slurp(path);
  const auto files = Must(ModelWeights::Open(PosixEnv(), model));
  const ModelWeights::Entry entry = files.Find("model.layers.1.mlp.up_proj.weight");
  const auto row = static_cast<size_t>(2 * 160 * 3);                                                        // bf16
  bytes.replace(static_cast<size_t>(entry.file->data_begin() + entry.tensor->begin) + row, 2, "\x80\x7F");  // infinity
  temper::Spill(path, bytes);
  ExpectEnd(Temper(On("nf4", {"--model", model})), 1,
            {"model.layers.1.mlp.up_proj.weight has an element that is not finite in row 3", "remove base_dtype"});
}

}  // namespace
}  // namespace temper::program
