// Models of each architecture, trained by the program under mpirun, have the losses of one rank. With TEMPER_TEST_DATA,
// also a published model, from its own weights.
#include <filesystem>

#include "comm/mpi/mpi_communicator.h"
#include "temper_program.h"

namespace temper::program::mesh_models_test {
namespace {

class MeshModels : public Workplace {
 protected:
  MeshModels() {
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // MPI's, not ours
  }
  void SetUp() override {
    if (!HasMpi() || std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
  }

  // Four steps of four rows of `model` on two ranks are those of one.
  void ExpectLossesOfOneRank(const Arguments& model) {
    const auto train = [&](const std::string& out, int accumulation, const Arguments& more) {
      Arguments all = Train(model);
      all = With(all, {"--dtype", "f32", "--learning_rate", "1e-3", "--per_device_train_batch_size", "1",
                       "--gradient_accumulation_steps", std::to_string(accumulation), "--output_dir", out});
      all = With(all, more);
      return Command(all);
    };
    const Ended alone = Process(train("alone", 4, {}), folder()).Wait();
    ASSERT_EQ(alone.code, 0) << alone.err;
    const auto expected = Losses(Path("alone"));
    ASSERT_EQ(expected.size(), 4u);
    EXPECT_NE(expected.at(1), expected.at(4)) << "the loss did not change";
    ASSERT_TRUE(PosixEnv().CreateFolders(Path("spill")).ok());
    struct Several {
      const char* mesh;
      int accumulation;
      Arguments more = {};
    };
    const Arguments far = {"--memory.tiers", "host",        "--memory.activations", "host",
                           "--memory.disk",  Path("spill"), "--memory.optimizer",   "disk"};
    for (const auto& [mesh, accumulation, more] :
         {Several{"fsdp=2", 2}, {"tp=2", 4}, {"pp=2", 4}, {"cp=2", 4}, {"pp=2", 4, far}, {"fsdp=2", 2, far}}) {
      SCOPED_TRACE(fmt::format("{}{}", mesh, more.empty() ? "" : " and memory tiers"));
      Arguments command = {"mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n", "2"};
      Arguments options = {"--mesh", mesh, "--overwrite"};
      options = With(options, more);
      const Arguments ours = train("several", accumulation, options);
      command = With(command, ours);
      const Ended several = Process(command, folder()).Wait();
      ASSERT_EQ(several.code, 0) << several.err;
      const auto losses = Losses(Path("several"));
      ASSERT_EQ(losses.size(), expected.size());
      for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 1e-5 * expected.at(step)) << step;
    }
  }
  // The example's tokenizer beside another config.json.
  std::string Drawn(const std::string& config) {
    const std::string path = CopyModel("drawn");
    std::filesystem::remove(path + "/model.safetensors");
    temper::Spill(path + "/config.json", config);
    return path;
  }
};

TEST_F(MeshModels, OfALlama) {
  ExpectLossesOfOneRank(
      {"--method", "full", "--from_scratch", "true", "--model",
       Drawn(
           R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 2048, "hidden_size": 128, "bos_token_id": 0, "eos_token_id": 1,
                           "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
                           "intermediate_size": 352, "max_position_embeddings": 512, "rope_theta": 10000.0,
                           "rms_norm_eps": 1e-5, "tie_word_embeddings": false})")});
}

TEST_F(MeshModels, OfAnOpt) {
  ExpectLossesOfOneRank(
      {"--method", "full", "--from_scratch", "true", "--model",
       Drawn(
           R"({"architectures": ["OPTForCausalLM"], "vocab_size": 2048, "hidden_size": 128, "bos_token_id": 0, "eos_token_id": 1,
                           "num_hidden_layers": 4, "num_attention_heads": 8, "ffn_dim": 512,
                           "max_position_embeddings": 512, "word_embed_proj_dim": 128, "do_layer_norm_before": true,
                           "activation_function": "gelu", "dropout": 0.0, "tie_word_embeddings": true})")});
}

TEST_F(MeshModels, OfAPublishedLlama) {
  const char* const data = std::getenv("TEMPER_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "TEMPER_TEST_DATA is not set";
  const std::string model = std::string(data) + "/models/tinystories-656k";
  std::string rows;  // plain text: the model has no chat template
  for (int i = 0; i < 60; ++i) {
    rows += fmt::format("{{\"text\": \"Once there was a little dog. It ran {} times around the big tree.\"}}\n", i);
  }
  Spill("t.jsonl", rows);
  ExpectLossesOfOneRank({"--method", "full", "--model", model, "--data", "t.jsonl"});
  for (const char* out : {"alone", "several"}) ASSERT_TRUE(PosixEnv().RemoveTree(Path(out)).ok());
  ExpectLossesOfOneRank({"--method", "lora", "--model", model, "--data", "t.jsonl"});
}

}  // namespace
}  // namespace temper::program::mesh_models_test
