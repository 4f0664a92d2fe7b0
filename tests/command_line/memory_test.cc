// The memory of a whole run, from reading data to the last save, is what `temper plan` predicts.
#include <fmt/ranges.h>

#include <filesystem>

#include "memory_cgroup.h"
#include "temper_program.h"

namespace temper::program::memory_test {
namespace {

#ifdef TEMPER_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Memory of a process besides its arena: its code and libraries,
// the tokenizer, the data, buffers of the checkpoint's writer.
constexpr Bytes kBeside{150 << 20};

constexpr char kLimits[] = "everything in memory takes ";

class Memory : public Workplace {
 protected:
  // The example's model, enlarged to some 26 million parameters: weights, gradients and states are four fifths of such
  // a run's memory. `trained`: one step further, with weights.
  static void SetUpTestSuite() {
    if (kSanitized) return;
    models_ = new ScratchFolder();
    const std::string grown = models_->path() + "/grown";
    TEMPER_CHECK(PosixEnv().CreateFolders(grown).ok());
    for (const std::string& file : Must(PosixEnv().List(kModel))) {
      temper::Spill(JoinPath(grown, file), temper::Slurp(JoinPath(kModel, file)));
    }
    Json config = Json::parse(temper::Slurp(grown + "/config.json"));
    config["hidden_size"] = 512;
    config["intermediate_size"] = 1408;
    config["num_hidden_layers"] = 8;
    config["num_attention_heads"] = 8;
    config["num_key_value_heads"] = 4;
    config["head_dim"] = 64;
    temper::Spill(grown + "/config.json", config.dump());
    temper::Spill(models_->path() + "/d.jsonl", FirstLines(kExample + "/pirate_train.jsonl", 60));
    const Ended trained =
        RunTemper(Train({"--model", grown, "--method", "full", "--from_scratch", "--max_steps", "1"}), models_->path());
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Ended exported =
        RunTemper({"export", "--model", "out", "--output_dir", "trained", "--dtype", "bf16"}, models_->path());
    ASSERT_EQ(exported.code, 0) << exported.err;
  }
  static void TearDownTestSuite() {
    delete models_;
    models_ = nullptr;
  }
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers keep books of their own";
  }

  static std::string Grown() { return models_->path() + "/grown"; }
  static std::string Trained() { return models_->path() + "/trained"; }

  // `options` name the model and the parts of the step.
  static Arguments Step(Arguments options) {
    const Arguments step = {"--threads", "1",       "--max_seq_len", "256", "--gradient_accumulation_steps",
                            "1",         "--rates", "typical"};
    options = With(options, step);
    return options;
  }
  static Arguments TrainStep(const Arguments& options, const std::string& out) {
    Arguments train = {"train",         "--data", "d.jsonl",      "--eval_data", "e.jsonl",     "--max_steps",  "2",
                       "--save_steps",  "1",      "--eval_steps", "2",           "--overwrite", "--output_dir", out,
                       "--tensorboard", "false"};
    const Arguments step = Step(options);
    train = With(train, step);
    return train;
  }

  void TakesWhatIsPlanned(const Arguments& options) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(options, " ")));
    Arguments plan = {"plan", "--json"};
    const Arguments step = Step(options);
    plan = With(plan, step);
    const Ended planned = Temper(plan);
    ASSERT_EQ(planned.code, 0) << planned.err;
    const Json by_tier = Json::parse(planned.out)["bytes"];
    const auto total = [&](const char* tier) {
      return by_tier.contains(tier) ? by_tier[tier]["total"].get<int64_t>() : int64_t{0};
    };
    const Bytes bytes{total("device") + total("host")};
    const Ended trained = Temper(TrainStep(options, "out"));
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_LE(trained.peak_rss, bytes + kBeside) << "planned " << ToString(bytes);
    EXPECT_GE(trained.peak_rss, bytes) << "planned memory is touched before the first step";
    const Json row = Json::parse(FirstLines(Path("out/metrics.jsonl"), 1));
    EXPECT_EQ(row["device_peak_bytes"], total("device"));
    if (total("host") > 0) {
      EXPECT_EQ(row["host_peak_bytes"], total("host"));
    }
    const Json moved = Json::parse(planned.out).value("bytes_moved", Json::array());
    EXPECT_EQ(row.contains("bytes_moved"), !moved.empty());
    for (const Json& link : moved) {
      const auto name = link["from"].get<std::string>() + "_to_" + link["to"].get<std::string>();
      EXPECT_EQ(row["bytes_moved"][name], link["bytes"]);
    }
  }

  // Runs in a process that the kernel kills if it takes more than `limit`; nullopt: this is not possible here.
  std::optional<Ended> Within(Bytes limit, const Arguments& arguments) const {
    const auto group = MemoryCgroup::Make(limit);
    if (!group) return std::nullopt;
    return Process(group->Inside(Command(arguments)), folder()).Wait();
  }

  static ScratchFolder* models_;
};
ScratchFolder* Memory::models_ = nullptr;

TEST_F(Memory, ARunTakesThePlannedMemory) {
  TakesWhatIsPlanned({"--model", Grown(), "--method", "full", "--from_scratch"});
  TakesWhatIsPlanned({"--model", Trained(), "--method", "lora"});
}

TEST_F(Memory, ARunInTiersTakesThePlannedMemory) {
  const Arguments full = {"--model", Grown(), "--method", "full", "--from_scratch"},
                  lora = {"--model", Trained(), "--method", "lora", "--dtype", "f32"};
  for (const auto& [run, memory] :
       {std::pair<Arguments, Arguments>{full, {"--memory.device", "200MiB"}},
        {full, {"--memory.device", "200MiB", "--memory.host", "60MiB", "--memory.disk", "spill"}},
        {full, {"--memory.tiers", "host"}},
        {full, {"--memory.optimizer", "disk", "--memory.disk", "spill"}},
        {lora, {"--memory.weights", "disk"}},
        {lora, {"--memory.device", "90MiB", "--memory.host", "48MiB"}}}) {
    Arguments options = run;
    options = With(options, memory);
    TakesWhatIsPlanned(options);
  }
}

// Without a limit of its own, a run is limited by the machine's memory.
TEST_F(Memory, ARunThatDoesNotFitItsCgroupKeepsTheRestOnDiskAndTrainsTheSame) {
  struct Case {
    Arguments options;
    Bytes limit;
    const char* result;
  };
  for (const Case& c :
       {Case{{"--model", Grown(), "--method", "full", "--from_scratch"}, MiB(420), "model.safetensors"},
        Case{{"--model", Trained(), "--method", "lora", "--dtype", "f32"}, MiB(270), "adapter_model.safetensors"}}) {
    SCOPED_TRACE(c.result);
    const Ended everywhere = Temper(TrainStep(c.options, "whole"));
    ASSERT_EQ(everywhere.code, 0) << everywhere.err;
    EXPECT_EQ(everywhere.err.find(kLimits), std::string::npos) << "this machine is too small for this test";
    const auto within = Within(c.limit, TrainStep(c.options, "out"));
    if (!within) GTEST_SKIP() << "no memory cgroup can be made here";
    ASSERT_EQ(within->code, 0) << within->err;
    for (const char* said : {kLimits, "memory cgroup", "on the disk", "wait for moves"}) {
      EXPECT_NE(within->err.find(said), std::string::npos) << "'" << said << "' is not said in:\n" << within->err;
    }
    EXPECT_EQ(Losses(Path("out")), Losses(Path("whole")));
    EXPECT_TRUE(Slurp(JoinPath("out", c.result)) == Slurp(JoinPath("whole", c.result)));
    // Resumes with all memory, as if it had been available before.
    Arguments on = TrainStep(c.options, "out");
    on = With(on, {"--overwrite", "false", "--resume=out/checkpoint-1"});
    const Ended resumed = Temper(on);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(resumed.err.find("another environment"), std::string::npos) << resumed.err;
    EXPECT_TRUE(Slurp(JoinPath("out", c.result)) == Slurp(JoinPath("whole", c.result)));
  }
}

// Each rank wrote half of it: the export assembles it tensor by tensor.
TEST_F(Memory, ExportOfAShardedCheckpointTakesMemoryForOneTensor) {
  Arguments train = TrainStep({"--model", Grown(), "--method", "full", "--from_scratch"}, "sharded");
  train = With(train, {"--nprocs", "2", "--mesh", "fsdp=2"});
  const Ended trained = Temper(train);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Ended exported = Temper({"export", "--model", "sharded/checkpoint-2", "--output_dir", "joined"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const Bytes whole{static_cast<int64_t>(std::filesystem::file_size(Path("joined/model.safetensors")))};
  EXPECT_GT(whole, MiB(40)) << "the model is too small to show anything";
  // The largest, the embeddings, takes 4 MiB in f32.
  EXPECT_LT(exported.peak_rss, Temper({"version"}).peak_rss + MiB(16)) << "of a model of " << ToString(whole);
}

// Stages need different amounts: each has its own limit, and the others get what one leaves.
TEST_F(Memory, APipelineThatDoesNotFitItsCgroupKeepsTheRestOnDiskAndTrainsTheSame) {
  Arguments options = {"--model", Grown(), "--method", "full", "--from_scratch", "--nprocs", "2", "--mesh", "pp=2"};
  const Ended everywhere = Temper(TrainStep(options, "whole"));
  ASSERT_EQ(everywhere.code, 0) << everywhere.err;
  EXPECT_EQ(everywhere.err.find(kLimits), std::string::npos) << "this machine is too small for this test";
  const auto within = Within(MiB(560), TrainStep(options, "out"));
  if (!within) GTEST_SKIP() << "no memory cgroup can be made here";
  ASSERT_EQ(within->code, 0) << within->err;
  for (const char* said : {kLimits, "memory cgroup", "on the disk"}) {
    EXPECT_NE(within->err.find(said), std::string::npos) << "'" << said << "' is not said in:\n" << within->err;
  }
  EXPECT_EQ(Losses(Path("out")), Losses(Path("whole")));
  EXPECT_TRUE(Slurp("out/model.safetensors") == Slurp("whole/model.safetensors"));
}

TEST_F(Memory, AModelLargerThanItsCgroupGeneratesAndEvaluatesTheSame) {
  const Arguments model = {"--model", Trained(), "--dtype", "f32", "--threads", "1"};
  for (const Arguments& what : {Arguments{"eval", "--data", "e.jsonl", "--max_seq_len", "128"},
                                Arguments{"generate", "--prompt", "Why is the sea salt?", "--max_new_tokens", "6"}}) {
    SCOPED_TRACE(what[0]);
    Arguments command = what;
    command = With(command, model);
    const Ended everywhere = Temper(command);
    ASSERT_EQ(everywhere.code, 0) << everywhere.err;
    Arguments limited = command;
    limited = With(limited, {"--memory.device", "40MiB", "--memory.host", "64KiB"});
    const Ended in_tiers = Temper(limited);
    ASSERT_EQ(in_tiers.code, 0) << in_tiers.err;
    EXPECT_NE(in_tiers.err.find("on the disk"), std::string::npos) << in_tiers.err;
    EXPECT_EQ(in_tiers.out, everywhere.out);
    const auto within = Within(MiB(240), command);
    if (!within) GTEST_SKIP() << "no memory cgroup can be made here";
    ASSERT_EQ(within->code, 0) << within->err;
    EXPECT_NE(within->err.find(kLimits), std::string::npos) << within->err;
    EXPECT_EQ(within->out, everywhere.out);
  }
}

}  // namespace
}  // namespace temper::program::memory_test
