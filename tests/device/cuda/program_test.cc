// The program itself on kernels as nvcc makes them: results of training, saving, resuming and using the model on the
// simulated GPU, compared with the CPU's.
#include <fmt/core.h>

#include <cmath>

#include "../../command_line/temper_program.h"

namespace temper::program::program_test {
namespace {

class OnPtx : public Workplace {
 protected:
  Ended Run(Arguments arguments, const std::string& device, const std::string& cwd) const {
    arguments.insert(arguments.end(), {"--device", device});
    return RunTemper(arguments, cwd);
  }
  std::string Folder(const std::string& name) const {
    TEMPER_CHECK(PosixEnv().CreateFolders(Path(name)).ok());
    for (const char* file : {"d.jsonl", "e.jsonl"}) Spill(JoinPath(name, file), Slurp(file));
    return Path(name);
  }
  // A short run in a folder of that name; *said: what it logged.
  std::string Trained(const std::string& name, const std::string& device, const Arguments& more,
                      std::string* said = nullptr) const {
    const Arguments run = With(Train({"--max_seq_len", "24", "--max_steps", "2", "--gradient_accumulation_steps", "2",
                                      "--learning_rate", "1e-3"}),
                               more);
    const std::string folder = Folder(name);
    const Ended ended = Run(run, device, folder);
    EXPECT_EQ(ended.code, 0) << ended.err;
    if (said != nullptr) *said = ended.err;
    return folder;
  }
  static std::vector<double> Losses(const std::string& folder) {
    std::ifstream in(folder + "/out/metrics.jsonl");
    std::vector<double> losses;
    for (std::string line; std::getline(in, line);) {
      const Json row = Json::parse(line);
      if (row.contains("loss")) losses.push_back(row["loss"].get<double>());
    }
    return losses;
  }
  static void ExpectLosses(const std::string& got, const std::string& want, double tolerance) {
    const auto a = Losses(got), b = Losses(want);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_GE(a.size(), 2u);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * b[i]) << got << ", step " << i + 1;
  }
  static std::string Weights(const std::string& folder) {
    for (const char* file : {"/out/model.safetensors", "/out/adapter_model.safetensors"}) {
      if (PosixEnv().IsFile(folder + file)) return temper::Slurp(folder + file);
    }
    ADD_FAILURE() << "no weights in " << folder;
    return "";
  }
};

// f32 sums in another order: 1e-4, as scripts/gpu_runs.sh has it.
TEST_F(OnPtx, LoraIsTrainedSavedAndGoneOnWithAsOnTheCpu) {
  const Arguments lora = {"--dtype", "f32", "--lora.dropout", "0.1", "--max_steps", "3", "--save_steps", "2"};
  const std::string cpu = Trained("cpu", "cpu", lora), gpu = Trained("gpu", "gpu", lora);
  ExpectLosses(gpu, cpu, 1e-4);
  Arguments on = lora;
  on.push_back("--resume=" + gpu + "/out/checkpoint-2");
  EXPECT_TRUE(Weights(Trained("on", "gpu", on)) == Weights(gpu));
  Arguments plain = lora;
  plain.insert(plain.end(), {"--graphs", "false"});
  EXPECT_TRUE(Weights(Trained("plain", "gpu", plain)) == Weights(gpu)) << "without graphs";
  // The result, used on both.
  for (const Arguments& use :
       {Arguments{"generate", "--prompt", "Ships", "--max_new_tokens", "6", "--temperature", "0"},
        Arguments{"eval", "--data", "e.jsonl", "--max_seq_len", "24"}}) {
    Arguments command = use;
    command.insert(command.end(), {"--model", "out", "--dtype", "f32"});
    const Ended want = Run(command, "cpu", cpu), got = Run(command, "gpu", cpu);
    ASSERT_EQ(want.code, 0) << want.err;
    ASSERT_EQ(got.code, 0) << got.err;
    if (use[0] == "generate") {
      EXPECT_EQ(got.out, want.out);
      EXPECT_FALSE(got.out.empty());
    } else {
      const double a = Json::parse(got.out)["eval_loss"].get<double>();
      const double b = Json::parse(want.out)["eval_loss"].get<double>();
      EXPECT_NEAR(a, b, 1e-4 * b);
    }
  }
}

// The library says which of its algorithms is the fastest, and each adds up in an order of its own
// (offered_algorithms.h).
class OnPtxWithAlgorithms : public OnPtx {
 protected:
  ~OnPtxWithAlgorithms() override {
    unsetenv("TEST_CUBLASLT_FASTEST");
    unsetenv("TEST_CUBLASLT_VERSION");
  }
  static Json Products(const std::string& folder, int step) {
    return Json::parse(temper::Slurp(fmt::format("{}/out/checkpoint-{}/products.json", folder, step)));
  }
  // That each product of each library and device has that algorithm; returns the number of products.
  static size_t ExpectAlgorithm(const Json& products, int algorithm) {
    size_t count = 0;
    for (const auto& [maker, algorithms] : products.items()) {
      EXPECT_NE(maker.find("cuBLASLt "), std::string::npos);
      EXPECT_NE(maker.find(" on "), std::string::npos);
      for (const auto& [product, bytes] : algorithms.items()) {
        EXPECT_EQ(bytes.get<std::string>().substr(16, 8), fmt::format("{:02x}000000", algorithm)) << product;
        ++count;
      }
    }
    EXPECT_GT(count, 5u);
    return count;
  }
  static std::string Timed(size_t products) {
    return fmt::format("products    timed {} algorithms for {} matrix products", 8 * products, products);
  }
};

TEST_F(OnPtxWithAlgorithms, TheFastestMultipliesIsKeptAndMultipliesAgainWhereARunGoesOn) {
  const Arguments run = {"--dtype", "f32", "--method", "full", "--max_steps", "3", "--save_steps", "2"};
  const std::string first_choice = Weights(Trained("untimed", "gpu", run));
  std::string said;
  setenv("TEST_CUBLASLT_FASTEST", "5", 1);
  const std::string off = Trained("off", "gpu", With(run, {"--time_products", "false"}), &said);
  EXPECT_TRUE(Weights(off) == first_choice);
  EXPECT_EQ(said.find("timed"), std::string::npos) << said;
  EXPECT_FALSE(PosixEnv().IsFile(off + "/out/checkpoint-2/products.json"));

  const std::string whole = Trained("whole", "gpu", run, &said);
  const size_t products = ExpectAlgorithm(Products(whole, 2), 5);
  EXPECT_NE(said.find(Timed(products)), std::string::npos) << said;
  EXPECT_FALSE(Weights(whole) == first_choice) << "the fastest was not used";

  // Another one is the fastest now.
  setenv("TEST_CUBLASLT_FASTEST", "2", 1);
  const Arguments on = With(run, {"--resume=" + whole + "/out/checkpoint-2"});
  const std::string resumed = Trained("resumed", "gpu", on, &said);
  EXPECT_TRUE(Weights(resumed) == Weights(whole));
  EXPECT_EQ(said.find("timed"), std::string::npos) << said;
  EXPECT_NE(said.find(" as the checkpoint has them"), std::string::npos) << said;
  EXPECT_EQ(Products(resumed, 3), Products(whole, 2));

  Trained("untimed_on", "gpu", With(on, {"--time_products", "false"}), &said);
  EXPECT_NE(said.find("another environment (timed_products true -> null)"), std::string::npos) << said;

  // Of another version of the library, and by one that no longer offers it.
  setenv("TEST_CUBLASLT_VERSION", "130999", 1);
  const std::string newer = Trained("newer", "gpu", on, &said);
  unsetenv("TEST_CUBLASLT_VERSION");
  EXPECT_NE(said.find("warning: the checkpoint's matrix products are of cuBLASLt"), std::string::npos) << said;
  EXPECT_NE(said.find(Timed(products)), std::string::npos) << said;
  Json kept = Products(newer, 3);
  ASSERT_EQ(kept.size(), 2u);
  const Json before = Products(whole, 2);
  for (const auto& [maker, algorithms] : before.items()) {
    EXPECT_EQ(kept[maker], algorithms);
    kept.erase(maker);
  }
  EXPECT_EQ(ExpectAlgorithm(kept, 2), products);
  unsetenv("TEST_CUBLASLT_FASTEST");
  EXPECT_EQ(ExpectAlgorithm(Products(Trained("fewer", "gpu", on, &said), 3), 0), products);
  EXPECT_NE(said.find(fmt::format("no longer offers what the checkpoint says of {} matrix products", products)),
            std::string::npos)
      << said;
}

// With states of the optimizer that begin as zeros, and with norms whose weights are constants: all lie in memory that
// the timing used for operands.
TEST_F(OnPtxWithAlgorithms, TimingLeavesTheMemoryAsItWas) {
  const std::string model = CopyModel("small");
  Spill("small/config.json", R"({"architectures": ["OPTForCausalLM"], "model_type": "opt", "vocab_size": 2048,
    "hidden_size": 16, "ffn_dim": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 512,
    "do_layer_norm_before": true, "layer_norm_elementwise_affine": false, "word_embed_proj_dim": 16})");
  // As many tokens as make the operands of the logits' product reach beyond the constants.
  const Arguments run = {"--model", model,      "--from_scratch", "true",          "--dtype",
                         "f32",     "--method", "full",           "--max_seq_len", "64"};
  const std::string untimed = Weights(Trained("untimed", "gpu", run));
  std::string said;
  setenv("TEST_CUBLASLT_FASTEST", "0", 1);
  EXPECT_TRUE(Weights(Trained("timed", "gpu", run, &said)) == untimed);
  EXPECT_NE(said.find("products    timed "), std::string::npos) << said;
}

TEST_F(OnPtxWithAlgorithms, RanksTakeWhatAnotherHasTimed) {
  setenv("TEMPER_TEST_GPU", "9.0x2", 1);
  setenv("TEST_CUBLASLT_FASTEST", "3", 1);
  std::string said;
  const std::string ranks = Trained("ranks", "gpu",
                                    {"--dtype", "f32", "--save_steps", "2", "--nprocs", "2", "--mesh", "dp=2",
                                     "--gradient_accumulation_steps", "1", "--lora.r", "24"},
                                    &said);
  unsetenv("TEMPER_TEST_GPU");
  const Json products = Products(ranks, 2);
  EXPECT_NE(said.find(Timed(ExpectAlgorithm(products, 3))), std::string::npos) << said;
  // A of q, k and v is one product, and A of gate and up; so are their gradients.
  for (const char* product :
       {"] x [72, 160] of f32 into f32, a by rows, b by rows", "] x [48, 160] of f32",
        "72] x [160, 72] of f32 into f32, a by rows, b by columns", "] x [160, 48] of f32", "\"[72, ", "\"[48, "}) {
    EXPECT_NE(products.dump().find(product), std::string::npos) << product << " is not in " << products.dump(1);
  }
}

// bf16 rounds activations to 2^-8: 5e-3, as tests/equivalence has it.
TEST_F(OnPtx, AllWeightsAreTrainedInBf16AsOnTheCpuWhereverTheyLie) {
  // What fits decides how a step is cut, unless it is given.
  const Arguments full = {"--method",        "full", "--dtype", "bf16", "--per_device_train_batch_size", "1",
                          "--max_grad_norm", "0"};
  const std::string cpu = Trained("cpu", "cpu", full), gpu = Trained("gpu", "gpu", full);
  ExpectLosses(gpu, cpu, 5e-3);
  const std::string weights = Weights(gpu);
  for (const char* memory : {"--memory.tiers=host", "--memory.optimizer=disk"}) {
    Arguments placed = full;
    placed.insert(placed.end(), {memory, "--memory.disk", "spill"});
    EXPECT_TRUE(Weights(Trained(memory + 9, "gpu", placed)) == weights) << memory;
  }
}

// The losses of a base that is kept in fewer bits are those of the CPU; the result is evaluated and used with it. With
// weights at the host or on the disk it has the same bytes.
TEST_F(OnPtx, LoraOnAQuantisedBaseIsTrainedAndUsedAsOnTheCpu) {
  for (const char* base : {"int8", "nf4"}) {
    SCOPED_TRACE(base);
    const auto in = [&](const char* where) { return std::string(base) + where; };
    const Arguments kept = {"--dtype", "bf16", "--base_dtype", base};
    const std::string cpu = Trained(in("_cpu"), "cpu", kept), gpu = Trained(in("_gpu"), "gpu", kept);
    ExpectLosses(gpu, cpu, 1e-2);  // by instruction set the CPU's differ by up to 2e-3, and the GPU's by 5 to 6e-3
    const std::string weights = Weights(gpu);
    EXPECT_TRUE(Weights(Trained(in("_spilled"), "gpu",
                                With(kept, {"--memory.weights", "disk", "--memory.disk", "s"}))) == weights);
    const auto used = [&](const Arguments& command, const char* device) {
      const Ended ended = Run(With(command, With({"--model", "out"}, kept)), device, gpu);
      EXPECT_EQ(ended.code, 0) << ended.err;
      return ended.out;
    };
    const Arguments eval = {"eval", "--data", "e.jsonl", "--max_seq_len", "24"};
    const auto loss = [&](const char* device) { return Json::parse(used(eval, device))["eval_loss"].get<double>(); };
    const double want = loss("cpu");
    EXPECT_NEAR(loss("gpu"), want, 5e-3 * want);
    EXPECT_FALSE(used({"generate", "--prompt", "Ships", "--max_new_tokens", "3", "--temperature", "0"}, "gpu").empty());
  }
}

TEST_F(OnPtx, WhatMultipliesAndAttendsIsLoggedOnceAndASlowWayWithItsRemedy) {
  const auto count = [](const std::string& text, const std::string& what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  for (const char* dtype : {"bf16", "f32"}) {
    const Ended ended = Run(Train({"--max_steps", "1", "--max_seq_len", "24", "--dtype", dtype}), "gpu", Folder(dtype));
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(count(ended.err, "matrix products: cuBLASLt"), 1) << ended.err;
    EXPECT_EQ(count(ended.err, "attention of "), 1) << ended.err;
    EXPECT_EQ(count(ended.err, "--dtype bf16 uses them"), std::string(dtype) == "f32" ? 1 : 0) << ended.err;
  }
}

// CUDA reports to the next caller only that some kernel has failed.
TEST_F(OnPtx, AKernelThatFailsEndsTheRunWithTheNameOfWhatItWasPartOf) {
  setenv("TEMPER_TEST_GPU_FAIL", "RmsNormRowGradients", 1);
  const Ended ended = Run(Train({"--max_steps", "1", "--max_seq_len", "24"}), "gpu", Folder("failing"));
  unsetenv("TEMPER_TEST_GPU_FAIL");
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.err.find("a kernel of backward"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("unspecified launch failure (719)"), std::string::npos) << ended.err;
}

// wgmma reads patterns that begin at whole 1024 bytes of shared memory. Here a kernel's window comes right after its
// arrays.
TEST_F(OnPtx, AWindowThatMatrixUnitsWouldMisreadEndsTheRun) {
  setenv("TEMPER_TEST_GPU_WINDOWS", "16", 1);
  const Ended ended =
      Run(Train({"--max_steps", "1", "--max_seq_len", "24", "--dtype", "bf16"}), "gpu", Folder("misread"));
  unsetenv("TEMPER_TEST_GPU_WINDOWS");
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.err.find("WarpgroupKeyGradients"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("traps"), std::string::npos) << ended.err;
}

TEST_F(OnPtx, RanksOnAGpuEachHaveTheLossesOfOne) {
  setenv("TEMPER_TEST_GPU", "9.0x2", 1);
  const Arguments full = {"--method", "full", "--dtype", "f32"};
  const std::string one = Trained("one", "gpu", full);
  for (const char* mesh : {"fsdp=2", "cp=2", "pp=2"}) {
    Arguments ranks = full;
    ranks.insert(ranks.end(), {"--nprocs", "2", "--mesh", mesh});
    if (std::string(mesh) == "fsdp=2") ranks.insert(ranks.end(), {"--gradient_accumulation_steps", "1"});
    ExpectLosses(Trained(std::string(mesh, 2), "gpu", ranks), one, 1e-4);
  }
  unsetenv("TEMPER_TEST_GPU");
}

}  // namespace
}  // namespace temper::program::program_test
