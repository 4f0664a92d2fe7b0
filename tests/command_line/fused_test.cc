// A model whose files store several weights in one tensor (Phi-3's q, k and v; gate and up): trained by the program,
// saved and exported in its original layout, by one rank and by several.
#include <filesystem>
#include <map>
#include <set>

#include "format/model_weights.h"
#include "temper_program.h"

namespace temper::program::fused_test {
namespace {

class Fused : public Workplace {
 protected:
  // The example's tokenizer beside a Phi-3 in f32, made by one step from scratch.
  std::string Base() const {
    const std::string base = Path("base"), drawn = CopyModel("drawn");
    if (PosixEnv().IsFolder(base)) return base;
    std::filesystem::remove(drawn + "/model.safetensors");
    temper::Spill(drawn + "/config.json",
                  R"({"architectures": ["Phi3ForCausalLM"], "vocab_size": 2048, "hidden_size": 64, "dtype": "float32",
                      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 40,
                      "intermediate_size": 96, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 1})");
    const Ended made = Temper(Train(
        {"--model", drawn, "--method", "full", "--from_scratch", "true", "--max_steps", "1", "--output_dir", base}));
    TEMPER_CHECK(made.code == 0) << made.err;
    return base;
  }
  Arguments Run(const std::string& method, const std::string& mesh, const Arguments& more) const {
    Arguments run = Train({"--model", Base(), "--method", method, "--dtype", "f32", "--gradient_accumulation_steps",
                           mesh.find("fsdp") == mesh.npos ? "2" : "1", "--per_device_train_batch_size", "1"});
    if (!mesh.empty()) run = With(run, {"--nprocs", "2", "--mesh", mesh});
    run = With(run, more);
    return run;
  }
  static ModelWeights Open(const std::string& path) {
    const bool adapter = path.find("adapter_model") != path.npos;
    return Must(ModelWeights::Open(PosixEnv(), path, adapter ? WeightsKind::kAdapter : WeightsKind::kModel));
  }
  static std::set<std::string> Tensors(const std::string& path) {
    const ModelWeights weights = Open(path);
    std::set<std::string> names;
    for (const ModelWeights::Entry& e : weights.entries()) names.insert(e.tensor->name + " " + e.tensor->ToString());
    return names;
  }
  // By name and type.
  static std::map<std::string, std::string> Data(const std::string& path) {
    const ModelWeights weights = Open(path);
    std::map<std::string, std::string> data;
    for (const ModelWeights::Entry& e : weights.entries()) {
      std::string& bytes = data[e.tensor->name + " " + e.tensor->ToString()];
      bytes.resize(static_cast<size_t>(e.tensor->bytes().v));
      TEMPER_CHECK(e.file->ReadTensor(e.tensor->name, std::as_writable_bytes(std::span(bytes))).ok());
    }
    return data;
  }
};

// A step that changes no weight saves the same bytes that it loaded, for any split over ranks.
TEST_F(Fused, LoadingAndSavingKeepsTheBytesOfTheBase) {
  const std::string base = Base() + "/model.safetensors";
  const std::set<std::string> tensors = Tensors(base);
  EXPECT_EQ(std::count_if(tensors.begin(), tensors.end(),
                          [](const std::string& t) { return t.find("qkv_proj.weight") != t.npos; }),
            2);
  for (const std::string mesh : {"", "fsdp=2", "tp=2", "pp=2"}) {
    SCOPED_TRACE(mesh);
    const std::string out = "out" + mesh;
    const Ended ended =
        Temper(Run("full", mesh, {"--max_steps", "1", "--learning_rate", "1e-30", "--output_dir", out}));
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(Data(Path(out + "/model.safetensors")) == Data(base)) << "other tensors than the base";
    if (mesh.empty()) {
      EXPECT_TRUE(Slurp(out + "/model.safetensors") == temper::Slurp(base)) << "other bytes than the base";
    }
    const Ended exported = Temper({"export", "--model", out + "/checkpoint-1", "--output_dir", "exported" + mesh});
    ASSERT_EQ(exported.code, 0) << exported.err;
    EXPECT_TRUE(Data(Path("exported" + mesh)) == Data(base)) << "an export with other tensors than the base";
  }
}

TEST_F(Fused, RunsOnAnyMeshHaveTheLossesOfOneRankAndResumeOnAnyOther) {
  for (const std::string method : {"full", "lora"}) {
    ASSERT_EQ(Temper(Run(method, "", {"--max_steps", "4", "--output_dir", method})).code, 0);
    const auto expected = Losses(Path(method));
    ASSERT_EQ(expected.size(), 4u);
    std::string from;  // the previous mesh's checkpoint after two steps
    for (const std::string mesh : {"fsdp=2", "tp=2", "pp=2", ""}) {
      SCOPED_TRACE(method + " on " + mesh);
      const std::string out = method + mesh + "_out";
      Arguments more = {"--max_steps", "4", "--save_steps", "2", "--output_dir", out};
      if (!from.empty()) more.push_back("--resume=" + from);
      const Ended ended = Temper(Run(method, mesh, more));
      ASSERT_EQ(ended.code, 0) << ended.err;
      const auto losses = Losses(Path(out));
      EXPECT_EQ(losses.size(), from.empty() ? 4u : 2u);
      for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 1e-5 * expected.at(step)) << step;
      from = Path(out + "/checkpoint-2");
      if (!PosixEnv().IsFolder(from)) from = Path(method + "fsdp=2_out/checkpoint-2");
    }
  }
  // PEFT's names and shapes: one A for q, k and v, and one B with all of their rows.
  const std::set<std::string> adapter = Tensors(Path("lora/adapter_model.safetensors"));
  EXPECT_EQ(adapter, Tensors(Path("lorafsdp=2_out/adapter_model.safetensors")));
  EXPECT_TRUE(std::any_of(adapter.begin(), adapter.end(), [](const std::string& t) {
    return t.starts_with("base_model.model.model.layers.0.self_attn.qkv_proj.lora_B.weight") &&
           t.find("[128, 16]") != t.npos;
  })) << *adapter.begin();
}

TEST_F(Fused, AnAdapterIsMergedIntoTheFusedTensorAndGivesTheSameAnswers) {
  ASSERT_EQ(Temper(Run("lora", "", {"--max_steps", "4", "--learning_rate", "1e-2"})).code, 0);
  const Ended exported = Temper({"export", "--model", "out", "--output_dir", "merged"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(Tensors(Path("merged")), Tensors(Base()));
  const Arguments ask = {"--prompt", "the quick brown", "--max_new_tokens", "24", "--dtype", "f32"};
  std::string answers[2];
  for (size_t i = 0; i < 2; ++i) {
    Arguments generate = {"generate", "--model", i == 0 ? "out" : "merged"};
    generate = With(generate, ask);
    const Ended ended = Temper(generate);
    ASSERT_EQ(ended.code, 0) << ended.err;
    answers[i] = ended.out;
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_FALSE(answers[0].empty());
}

}  // namespace
}  // namespace temper::program::fused_test
