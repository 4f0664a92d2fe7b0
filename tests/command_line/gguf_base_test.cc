// A GGUF file as a model, for users: what it computes, trains and is exported to, beside the folder that it was made
// of.
#include <cstdlib>
#include <filesystem>

#include "typed_tensors.h"

namespace temper::program::gguf_base_test {
namespace {

class GgufBase : public Workplace {
 protected:
  GgufBase() {
    const char* const before = std::getenv("XDG_CACHE_HOME");
    if (before != nullptr) before_ = before;
    setenv("XDG_CACHE_HOME", Path("cache").c_str(), 1);
  }
  ~GgufBase() override { before_.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", before_.c_str(), 1); }

  void Export(const char* type) const {
    ExpectEnd(
        Temper({"export", kModel, "--output_dir", "gguf", "--format", "gguf", "--gguf_type", type, "--threads", "1"}),
        0, {});
  }
  std::string Says(const std::string& model) const {
    const Ended ended =
        Temper({"generate", model, "--prompt", "Why does it rain?", "--max_new_tokens", "12", "--threads", "1"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  }

 private:
  std::string before_;
};

TEST_F(GgufBase, ComputesTrainsAndExportsWhatItsFolderDoes) {
  Export("bf16");
  const std::string file = Path("gguf/model-bf16.gguf");
  EXPECT_EQ(Says("gguf/model-bf16.gguf"), Says(kModel));

  ExpectEnd(Temper(Train({"--max_steps", "2", "--model", kModel, "--output_dir", "of_folder"})), 0, {});
  ExpectEnd(Temper(Train({"--max_steps", "2", "--model", "gguf/model-bf16.gguf", "--output_dir", "of_file"})), 0, {});
  EXPECT_EQ(Slurp("of_file/adapter_model.safetensors"), Slurp("of_folder/adapter_model.safetensors"));
  const Json adapter = Json::parse(Slurp("of_file/adapter_config.json"));
  EXPECT_EQ(adapter["base_model_name_or_path"], file);
  EXPECT_EQ(Says("of_file"), Says("of_folder"));
  // Its cached folder is made again where it is gone.
  std::filesystem::remove_all(Path("cache"));
  EXPECT_EQ(Says("of_file"), Says("of_folder"));
  EXPECT_TRUE(Has("cache/temper/gguf"));

  ExpectEnd(Temper({"export", "of_file", "--output_dir", "merged"}), 0, {});
  ExpectEnd(Temper({"export", "of_folder", "--output_dir", "merged_folder"}), 0, {});
  EXPECT_TRUE(Has("merged/tokenizer.json"));
  EXPECT_EQ(Says("merged"), Says("merged_folder"));
}

// Tiny models of tests/parity whose GGUF form exists with these changes.
struct Changed {
  const char* name;
  Json patch;                     // of config.json
  const char* without = nullptr;  // the end of names of tensors that go
  double error = 0;               // of a number: Gemma's norms are stored as 1 + w
};

TEST_F(GgufBase, ArchitecturesWithRulesOfTheirOwnComeBackWithTheirWeights) {
  const Json every_fourth = {{"no_rope_layers", {1, 1, 1, 0}},
                             {"no_rope_layer_interval", 4},
                             {"layer_types", std::vector<std::string>(4, "full_attention")},
                             {"use_sliding_window", false},
                             {"sliding_window", nullptr}};
  const Json ropes = {{"rope_parameters",
                       {{"rope_type", "llama3"},
                        {"rope_theta", 500000.0},
                        {"factor", 32.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}}}};
  const Changed all[] = {
      {"gemma", {{"tie_word_embeddings", true}}, "lm_head.weight", 1e-6},
      {"gemma2", {{"tie_word_embeddings", true}, {"query_pre_attn_scalar", 16}}, "lm_head.weight", 1e-6},
      {"gemma3", {{"query_pre_attn_scalar", 16}}, nullptr, 1e-6},
      {"smollm3", every_fourth},
      {"olmo2", {{"attention_bias", false}}, ".bias"},
      {"llama_rope_llama3", ropes}};
  for (const Changed& one : all) {
    SCOPED_TRACE(one.name);
    const std::string from = std::string(kProjectFolder) + "/tests/parity/goldens/models/" + one.name;
    TypedTensors before = TensorsIn(from);
    if (one.without != nullptr) std::erase_if(before, [&](const auto& t) { return t.first.ends_with(one.without); });
    Json config = Json::parse(temper::Slurp(from + "/config.json"));
    config.update(one.patch);
    const std::string model = Path(one.name);
    ASSERT_TRUE(PosixEnv().CreateFolders(model).ok());
    temper::Spill(model + "/config.json", config.dump());
    WriteTensors(model, before);
    ExpectEnd(Temper({"export", model, "--output_dir", model + ".gguf", "--format", "gguf", "--gguf_type", "f32"}), 0,
              {});
    ExpectEnd(Temper({"export", model + ".gguf/model-f32.gguf", "--output_dir", model + ".back"}), 0, {});
    const TypedTensors after = TensorsIn(model + ".back");
    ASSERT_EQ(after.size(), before.size());
    for (const auto& [name, t] : before) {
      ASSERT_TRUE(after.contains(name)) << name;
      const std::string& bytes = after.at(name).second;
      ASSERT_EQ(bytes.size(), t.second.size()) << name;
      std::vector<float> x(bytes.size() / sizeof(float)), y(x.size());
      std::memcpy(x.data(), t.second.data(), bytes.size());
      std::memcpy(y.data(), bytes.data(), bytes.size());
      for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], one.error) << name << ", element " << i;
    }
    // What computes is the same, too: the file of the file.
    ExpectEnd(
        Temper({"export", model + ".back", "--output_dir", model + ".again", "--format", "gguf", "--gguf_type", "f32"}),
        0, {});
    const std::string first = temper::Slurp(model + ".gguf/model-f32.gguf"),
                      again = temper::Slurp(model + ".again/model-f32.gguf");
    const auto keys = [&](const std::string& file) {
      const size_t begin = file.find(".block_count");  // behind the name, which differs
      return file.substr(begin, file.find("token_embd.weight") - begin).substr(0, 200);
    };
    EXPECT_EQ(keys(again), keys(first));
  }
}

// The folder that an export makes of the file has the numbers of its blocks in f32, which bf16 rounds once, as kernels
// do that read blocks.
TEST_F(GgufBase, BlocksStayInMemoryAndComputeWhatTheirNumbersDo) {
  for (const char* type : {"q8_0", "q4_k_m"}) {  // of 160 and 448 columns the latter makes q5_0, q5_1 and q8_0
    SCOPED_TRACE(type);
    Export(type);
    const std::string file = std::string("gguf/model-") + type + ".gguf", plain = std::string("plain_") + type;
    const Ended exported = Temper({"export", file, "--output_dir", plain});
    ExpectEnd(exported, 0, {"tensors in q8_0", "linear modules stay so in a frozen base"});
    const auto trained = [&](const std::string& model, const std::string& to, const Arguments& more = {}) {
      ExpectEnd(
          Temper(With(Train({"--max_steps", "2", "--dtype", "bf16", "--model", model, "--output_dir", to}), more)), 0,
          {});
      return Losses(Path(to));
    };
    const auto losses = trained(file, std::string("of_") + type);
    EXPECT_EQ(losses, trained(plain, plain + "_adapter"));
    EXPECT_EQ(losses,
              trained(file, std::string("from_disk_") + type, {"--memory.weights", "disk", "--memory.disk", "spill"}));
    EXPECT_EQ(trained(file, "f32", {"--dtype", "f32", "--overwrite"}),
              trained(plain, "plain_f32", {"--dtype", "f32", "--overwrite"}));
    EXPECT_EQ(trained(file, "nf4", {"--base_dtype", "nf4", "--overwrite"}),
              trained(plain, "plain_nf4", {"--base_dtype", "nf4", "--overwrite"}));
    const auto weights = [&](const std::string& model) {
      const Ended plan = Temper(
          {"plan", "--json", "--model", model, "--dtype", "bf16", "--cluster", "RTX3090-24", "--max_seq_len", "96"});
      EXPECT_EQ(plan.code, 0) << plan.err;
      return Json::parse(plan.out)["bytes"]["device"]["weights"].get<int64_t>();
    };
    // 1.5 million elements of linear modules, of 2 bytes each there.
    const int64_t saved = weights(plain) - weights(file), elements = 5 * (2 * 160 * 160 + 2 * 160 * 32 + 3 * 160 * 448);
    EXPECT_GT(saved, elements * 9 / 10) << "a byte and a sixteenth of one is left at most";

    // The file of the merged model has the blocks of what the adapter leaves as it is.
    trained(file, "some", {"--lora.target_modules", "q_proj", "--overwrite"});
    const auto report = [&](const char* model) {
      return Temper({"export", model, "--output_dir", "again", "--format", "gguf", "--gguf_type", type, "--overwrite"});
    };
    ExpectEnd(report("some"), 0, {"tensors have the blocks of the base's file"});
    ExpectEnd(report(file.c_str()), 0, {"tensors have the blocks of the base's file"});
    const std::string before = Slurp(file), after = Slurp(std::string("again/model-") + type + ".gguf");
    constexpr size_t kLast = 1'000'000;
    ASSERT_GT(after.size(), kLast);
    ASSERT_GT(before.size(), kLast);
    EXPECT_TRUE(after.substr(after.size() - kLast) == before.substr(before.size() - kLast)) << "the last tensors";
  }
}

TEST_F(GgufBase, AFileInBlocksIsTrainedInFull) {
  Export("q8_0");
  ExpectEnd(Temper(Train({"--max_steps", "1", "--method", "full", "--model", "gguf/model-q8_0.gguf"})), 0, {});
  EXPECT_FALSE(Json::parse(Slurp("out/config.json")).contains("quantization_config"));
  Says("out");
}

TEST_F(GgufBase, BadFilesAreRefusedByWhatIsWrong) {
  Export("bf16");
  const std::string whole = Slurp("gguf/model-bf16.gguf");
  Spill("half.gguf", whole.substr(0, whole.size() / 2));
  ExpectEnd(Temper({"generate", "half.gguf", "--prompt", "a"}), 1,
            {"half.gguf is truncated", "fetch or copy it again"});
  Spill("text.gguf", "no model");
  ExpectEnd(Temper({"generate", "text.gguf", "--prompt", "a"}), 2, {"is a file, and no GGUF file"});
  ExpectEnd(Temper({"train", "--model", "half.gguf", "--data", "d.jsonl", "--output_dir", "out"}), 1, {"is truncated"});
}

}  // namespace
}  // namespace temper::program::gguf_base_test
