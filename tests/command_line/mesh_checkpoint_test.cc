// Runs of several ranks are saved, stopped and resumed: on the same mesh with the same bits, on any other with the same
// losses. Other commands read their checkpoints, too.
#include <cmath>
#include <filesystem>
#include <set>

#include "checkpoint/manifest.h"
#include "config/run_options.h"
#include "temper_program.h"

namespace temper::program::mesh_checkpoint_test {
namespace {

class MeshCheckpoint : public Workplace {
 protected:
  // A model whose heads two ranks can share, in f32: made by one step from scratch.
  std::string Model() const {
    const std::string base = Path("base");
    if (PosixEnv().IsFolder(base)) return base;
    const std::string drawn = CopyModel("drawn");
    std::string config = temper::Slurp(drawn + "/config.json");
    for (const auto& [from, to] : {std::pair{"\"num_attention_heads\": 5", "\"num_attention_heads\": 4"},
                                   {"\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2"},
                                   {"bfloat16", "float32"}}) {
      TEMPER_CHECK(config.find(from) != config.npos) << from;
      config.replace(config.find(from), std::string(from).size(), to);
    }
    temper::Spill(drawn + "/config.json", config);
    const Ended made = Temper(Train(
        {"--model", drawn, "--method", "full", "--from_scratch", "true", "--max_steps", "1", "--output_dir", base}));
    TEMPER_CHECK(made.code == 0) << made.err;
    return base;
  }
  // Two rows a step, four steps, saved after the second and the last.
  Arguments Steps(const std::string& method, const std::string& mesh, const std::string& out,
                  const Arguments& more = {}) const {
    Arguments run = Train({"--model", Model(), "--method", method, "--dtype", "f32", "--max_steps", "4", "--save_steps",
                           "2", "--learning_rate", "1e-3", "--max_seq_len", "48", "--output_dir", out});
    const bool deals = mesh.find("dp") != mesh.npos || mesh.find("2d") != mesh.npos;
    run = With(run, {"--per_device_train_batch_size", "1", "--gradient_accumulation_steps", deals ? "1" : "2"});
    const bool four = mesh.find(',') != mesh.npos;  // two axes of two
    if (!mesh.empty()) run = With(run, {"--nprocs", four ? "4" : "2", "--mesh", mesh});
    run = With(run, more);
    return run;
  }
  void RunWell(const Arguments& arguments, const std::string& says = "") const {
    const Ended ended = Temper(arguments);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.err.find(says), std::string::npos) << ended.err;
  }
  // Keeps the result of a run that was never stopped; `out` remains for one to be stopped.
  void KeepWhole(const std::string& out) const {
    ASSERT_TRUE(PosixEnv().RemoveTree(Path("whole")).ok());
    std::filesystem::copy(Path(out), Path("whole"), std::filesystem::copy_options::recursive);
  }
  // As if the run had been stopped after its second step.
  void StopAtTwo(const std::string& out) const {
    for (const char* name :
         {"checkpoint-4", "model.safetensors", "adapter_model.safetensors", "config.json", "adapter_config.json"}) {
      ASSERT_TRUE(PosixEnv().RemoveTree(Path(JoinPath(out, name))).ok());
    }
  }
};

// Decisions by cost are saved with the checkpoint and kept, even if cost would decide otherwise under the new options.
TEST_F(MeshCheckpoint, KeepsDecisionsUnlessToldOtherwise) {
  const auto decided = [&](const std::string& out) {
    const Json manifest = Json::parse(temper::Slurp(Path(JoinPath(out, "checkpoint-4/manifest.json"))));
    return manifest["decisions"].dump();
  };
  // With one micro-batch there is no decision.
  const auto with = [&](Arguments more) {
    more = With(more, {"--gradient_accumulation_steps", "2"});
    return Steps("full", "fsdp=2", "out", more);
  };
  RunWell(with({"--mesh.grad_sync", "step", "--mesh.embedding", "table"}), "grad_sync: step, not micro_batch");
  const std::string first = decided("out");
  EXPECT_NE(first.find("\"grad_sync\":\"step\""), std::string::npos) << first;
  EXPECT_NE(first.find("embed_tokens.weight\":\"table\""), std::string::npos) << first;
  StopAtTwo("out");
  RunWell(with({"--resume"}), "same as the resumed run");
  EXPECT_EQ(decided("out"), first);
  StopAtTwo("out");
  RunWell(with({"--resume", "--mesh.grad_sync", "micro_batch"}), "grad_sync: micro_batch, not step: requested");
}

// Gathering the feed-forward part's weights over tensor ranks is a decision like others, and the plan shows it.
TEST_F(MeshCheckpoint, KeepsTheDecisionOnWhatTensorRanksExchange) {
  const auto with = [&](const Arguments& more) { return Steps("full", "tp=2", "out", more); };
  RunWell(with({"--mesh.mlp", "weights"}), "mlp: weights, not activations: requested");
  const auto asked = Losses(Path("out"));
  StopAtTwo("out");
  RunWell(with({"--resume"}), "mlp: weights, not activations: same as the resumed run");
  EXPECT_EQ(Losses(Path("out")), asked);
  RunWell(with({"--overwrite"}), "mlp: activations, not weights: it sends less");
  for (const auto& [step, loss] : Losses(Path("out"))) EXPECT_NEAR(loss, asked.at(step), 1e-5 * loss) << step;
  const Ended plan = Temper({"plan", "--model", Model(), "--method", "lora", "--mesh", "tp=2", "--dtype", "f32",
                             "--max_seq_len", "512", "--per_device_train_batch_size", "4"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("mlp: weights, not activations: it sends less"), std::string::npos) << plan.out;
}

// Rows of a micro-batch, and micro-batches, of a run's ranks.
std::pair<int64_t, int64_t> CutOf(const std::string& out) {
  const auto config = ParseRunConfig(temper::Slurp(JoinPath(out, "run.yaml")), "run.yaml");
  TEMPER_CHECK(config.ok()) << config.status().message();
  EXPECT_FALSE(config->batch.auto_cut);
  return {config->batch.per_device_train_batch_size, config->batch.gradient_accumulation_steps};
}

// The rows of a step are the user's; how many make a micro-batch is the plan's. A checkpoint keeps it, and another
// number of ranks cuts the same rows anew.
TEST_F(MeshCheckpoint, AnAutomaticCutKeepsRowsLossesAndResumes) {
  const auto with = [&](const std::string& mesh, const std::string& out, const std::string& rows, Arguments more = {}) {
    return Steps("lora", mesh, out,
                 With(more, {"--per_device_train_batch_size", rows, "--gradient_accumulation_steps", "4",
                             "--max_seq_len", "96"}));
  };
  const auto rows_of = [&](const std::string& out) { return CutOf(Path(out)); };
  RunWell(with("", "one", "1"));
  RunWell(with("", "out", "auto"), "settings    per_device_train_batch_size");
  const auto [rows, micro_batches] = rows_of("out");
  EXPECT_GT(rows, 1) << "launches are most of the time of this small model";
  EXPECT_EQ(rows * micro_batches, 4);
  const auto expect_near = [&](const std::string& out) {
    for (const auto& [step, loss] : Losses(Path("one"))) EXPECT_NEAR(Losses(Path(out)).at(step), loss, 1e-5 * loss);
  };
  expect_near("out");
  KeepWhole("out");
  StopAtTwo("out");
  RunWell(with("", "out", "auto", {"--resume"}));
  EXPECT_EQ(Losses(Path("out")), Losses(Path("whole"))) << "the same cut: the same bits";
  StopAtTwo("out");
  RunWell(with("fsdp=2", "out", "auto", {"--resume"}), "a step has the same 4 rows");
  expect_near("out");
  EXPECT_EQ(rows_of("out").first * rows_of("out").second, 2) << "of each rank";
  // What the user once asked for is known after a resume by the run's own settings, too.
  StopAtTwo("out");
  RunWell({"train", "out/run.yaml", "--resume"});
  StopAtTwo("out");
  const Ended three = Temper(With(with("", "out", "auto", {"--resume"}), {"--mesh", "fsdp=3", "--nprocs", "3"}));
  EXPECT_NE(three.code, 0);
  EXPECT_NE(three.err.find("a step has 4 rows, which 3 ranks with rows of their own do not divide"), std::string::npos)
      << three.err;
}

// The placement of a tensor's parts is not a setting of the run: it may change when resuming.
TEST_F(MeshCheckpoint, ResumesWithOtherShardingRules) {
  for (const char* method : {"full", "lora"}) {
    SCOPED_TRACE(method);
    ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
    RunWell(
        Steps(method, "fsdp=2", "out", {"--mesh.sharding", R"([["mlp", "-,fsdp"], ["o_proj.*weight", "replicate"]])"}));
    KeepWhole("out");
    StopAtTwo("out");
    RunWell(Steps(method, "fsdp=2", "out", {"--resume", "--mesh.sharding", R"([["(q|k)_proj", "-,fsdp"]])"}),
            "resume      from out/checkpoint-2 at step 2");
    const auto whole = Losses(Path("whole")), resumed = Losses(Path("out"));
    ASSERT_EQ(whole.size(), resumed.size());
    for (const auto& [step, loss] : whole) EXPECT_NEAR(resumed.at(step), loss, 1e-5 * loss) << "step " << step;
  }
}

TEST_F(MeshCheckpoint, ResumesWithTheSameBits) {
  for (const char* method : {"full", "lora"}) {
    for (const std::string mesh : {"fsdp=2", "tp=2", "pp=2", "dp=2", "cp=2", "tp=4,tp_mode=2d"}) {
      // An adapter only differs in how it is saved, which is the same on the other meshes as with fsdp.
      if (method == std::string("lora") && (mesh == "dp=2" || mesh == "cp=2" || mesh.find("2d") != mesh.npos)) continue;
      SCOPED_TRACE(fmt::format("{} {}", method, mesh));
      ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
      RunWell(Steps(method, mesh, "out"));
      KeepWhole("out");
      StopAtTwo("out");
      RunWell(Steps(method, mesh, "out", {"--resume"}), "resume      from out/checkpoint-2 at step 2");
      ExpectSame(Path("whole"), Path("out"));
    }
  }
}

// A launcher forwards the signal, and the ranks agree on the step after which they stop.
TEST_F(MeshCheckpoint, StoppedByATermSignalItIsSavedAndResumesWithTheSameBits) {
  const Arguments steps = Steps("full", "fsdp=2", "out", {"--max_steps", "60", "--save_steps", "30"});
  RunWell(steps);
  KeepWhole("out");
  ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
  Process run(Command(steps), folder());
  ASSERT_TRUE(run.ReadErrUntil("step 7/"));
  run.Signal(SIGTERM);
  const Ended stopped = run.Wait();
  EXPECT_EQ(stopped.code, 75) << stopped.err;
  EXPECT_NE(stopped.err.find("checkpoint saved; continue with the same command and --resume"), std::string::npos);
  EXPECT_FALSE(Has("out/model.safetensors")) << "it was not stopped";
  Arguments on = steps;
  on.push_back("--resume");
  RunWell(on, "resume      from out/checkpoint-");
  ExpectSame(Path("whole"), Path("out"));
}

TEST_F(MeshCheckpoint, MetricsHaveTheTimeAndMemoryOfEachRank) {
  RunWell(Steps("full", "fsdp=2", "out"));
  std::ifstream in(Path("out/metrics.jsonl"));
  int rows = 0;
  for (std::string line; std::getline(in, line);) {
    const Json row = Json::parse(line);
    if (!row.contains("loss")) continue;
    ++rows;
    ASSERT_EQ(row["ranks"].size(), 2u) << line;
    for (const Json& rank : row["ranks"]) {
      const double kernels = rank["kernels"], collectives = rank["collectives"], waiting = rank["waiting"];
      EXPECT_GT(kernels, 0) << line;
      EXPECT_GE(kernels + collectives + waiting, 0.99) << "all of the time: " << line;
      EXPECT_GT(rank["resident_peak_bytes"].get<int64_t>(), row["device_peak_bytes"].get<int64_t>()) << line;
    }
  }
  EXPECT_EQ(rows, 4);
}

TEST_F(MeshCheckpoint, ResumesOnAnyOtherMesh) {
  using Ways = std::vector<std::pair<std::string, std::string>>;
  const Ways of_full = {{"fsdp=2", ""},
                        {"", "fsdp=2"},
                        {"tp=2", "fsdp=2"},
                        {"dp=2", "tp=2"},
                        {"cp=2", ""},
                        {"tp=2", "cp=2"},
                        {"pp=2", ""},
                        {"", "pp=2"},
                        {"pp=2", "fsdp=2"},
                        {"fsdp=2", "pp=2"},
                        {"fsdp=2", "pp=2,tp=2"},
                        {"tp=2", "tp=4,tp_mode=2d"},
                        {"tp=4,tp_mode=2d", "fsdp=2"}};
  const Ways of_lora = {{"fsdp=2", ""}, {"", "tp=2"}, {"cp=2", ""}, {"pp=2", "fsdp=2"}};
  for (const char* method : {"full", "lora"}) {
    const Ways& ways = method == std::string("full") ? of_full : of_lora;
    std::set<std::string> meshes = {""};
    for (const auto& [from, to] : ways) meshes.insert(from);
    for (const std::string& mesh : meshes) RunWell(Steps(method, mesh, fmt::format("{}-{}", method, mesh)));
    const auto expected = Losses(Path(fmt::format("{}-", method)));
    ASSERT_EQ(expected.size(), 4u);
    EXPECT_NE(expected.at(1), expected.at(4)) << "the loss did not change";
    for (const auto& [from, to] : ways) {
      SCOPED_TRACE(fmt::format("{}: {} -> {}", method, from, to));
      const std::string out = fmt::format("{}-{}-to-{}", method, from, to);
      RunWell(Steps(method, to, out, {fmt::format("--resume={}-{}/checkpoint-2", method, from)}),
              "the run continues in another environment (mesh ");
      const auto losses = Losses(Path(out));
      ASSERT_EQ(losses.size(), 2u);
      for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 1e-5 * expected.at(step)) << step;
    }
  }
}

// The batch stays the same: 24 rows per step, on any number of ranks.
TEST_F(MeshCheckpoint, ResumesOnAnyNumberOfRanksThatDividesTheBatch) {
  const auto run = [&](int ranks, int accumulation, const std::string& out, const Arguments& more = {}) {
    Arguments all = Train({"--method", "full", "--dtype", "f32", "--max_steps", "4", "--save_steps", "2",
                           "--learning_rate", "1e-3", "--max_seq_len", "32", "--output_dir", out, "--nprocs",
                           std::to_string(ranks), "--gradient_accumulation_steps", std::to_string(accumulation)});
    all = With(all, more);
    return all;
  };
  RunWell(run(8, 3, "8"));
  RunWell(run(1, 24, "1"));
  const auto expected = Losses(Path("1"));
  ASSERT_EQ(expected.size(), 4u);
  // Only the number of ranks on the command line changes, as with the same YAML file.
  for (const auto& [from, to, rows_of_rank] : {std::tuple{"8", 3, 8}, {"8", 1, 24}, {"1", 8, 3}}) {
    SCOPED_TRACE(fmt::format("{} -> {}", from, to));
    const std::string out = fmt::format("{}to{}", from, to);
    RunWell(run(to, 3, out, {fmt::format("--resume={}/checkpoint-2", from)}),
            std::string("resume      from ") + from + "/checkpoint-2 at step 2");
    const auto [rows, micro_batches] = CutOf(Path(out));
    EXPECT_EQ(rows * micro_batches, rows_of_rank);
    const auto losses = Losses(Path(out));
    ASSERT_EQ(losses.size(), 2u);
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 1e-5 * expected.at(step)) << step;
  }
  // Again with the same command: what was adapted stays so.
  ExpectEnd(Temper(run(3, 3, "8to3", {"--max_steps", "5", "--resume"})), 0, {"24 rows of 32 tokens a step"});
  ExpectEnd(Temper(run(5, 3, "5", {"--resume=8/checkpoint-2"})), 2,
            {"8/checkpoint-2: a step has 24 rows", "5 ranks", "1, 2, 3, 4, 6, 8, 12, 24"});
  ExpectEnd(Temper(run(5, 3, "5", {"--resume=8/checkpoint-2", "--per_device_train_batch_size", "2"})), 0,
            {"30 rows of 32 tokens a step"});
  // Another micro-batch is another batch: nothing is adapted, though 16 rows at once do not divide 24.
  ExpectEnd(
      Temper(run(2, 3, "8to2", {"--resume=8/checkpoint-2", "--per_device_train_batch_size", "8", "--max_steps", "3"})),
      0, {"48 rows of 32 tokens a step", "a step has 48 rows, not 24"});

  const Ended listed = Temper({"inspect", "8/checkpoint-4"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("tensors are stored in slices, from up to 8 ranks"), std::string::npos) << listed.out;
  RunWell({"export", "--model", "8/checkpoint-4", "--output_dir", "of_checkpoint"});
  RunWell({"export", "--model", "8", "--output_dir", "of_result"});
  EXPECT_TRUE(Slurp("of_checkpoint/model.safetensors") == Slurp("of_result/model.safetensors"));
}

TEST_F(MeshCheckpoint, OtherCommandsReadItAsAModel) {
  RunWell(Steps("full", "fsdp=2", "full"));
  EXPECT_FALSE(Has("full/checkpoint-4/model.safetensors")) << "weights are not written twice";
  EXPECT_TRUE(Has("full/checkpoint-4/state-00001-of-00002.safetensors"));
  const Ended listed = Temper({"inspect", "full/checkpoint-4", "--tensors"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("model.norm.weight  f32[160]"), std::string::npos) << listed.out;
  EXPECT_NE(listed.out.find("[80, 448] at [80, 0] in state-00001-of-00002.safetensors"), std::string::npos)
      << listed.out;
  EXPECT_NE(listed.out.find("tensors are stored in slices, from up to 2 ranks"), std::string::npos);
  EXPECT_NE(listed.out.find("have the checksums of the manifest"), std::string::npos);
  EXPECT_EQ(Temper({"inspect", "full"}).code, 0);

  RunWell({"export", "--model", "full/checkpoint-4", "--output_dir", "of_checkpoint"});
  RunWell({"export", "--model", "full", "--output_dir", "of_result"});
  EXPECT_TRUE(Slurp("of_checkpoint/model.safetensors") == Slurp("of_result/model.safetensors"));
  EXPECT_GT(Slurp("of_result/model.safetensors").size(), 1u << 20);
  std::vector<std::string> texts;
  for (const char* model : {"full/checkpoint-4", "full", "of_result"}) {
    const Ended said = Temper({"generate", "--model", model, "--prompt", "The captain", "--max_new_tokens", "12",
                               "--temperature", "0", "--dtype", "f32", "--threads", "1"});
    EXPECT_EQ(said.code, 0) << said.err;
    texts.push_back(said.out);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);

  // Commands that verify find a damaged slice, and the run does not resume from it.
  std::string bytes = Slurp("full/checkpoint-4/state-00001-of-00002.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  Spill("full/checkpoint-4/state-00001-of-00002.safetensors", bytes);
  ExpectEnd(Temper({"inspect", "full/checkpoint-4"}), 1, {"state-00001-of-00002.safetensors: tensor ", "is damaged"});
}

TEST_F(MeshCheckpoint, OtherCommandsReadItAsAnAdapter) {
  RunWell(Steps("lora", "tp=2", "out"));
  const std::string adapter = Slurp("out/checkpoint-4/adapter_model.safetensors");
  EXPECT_GT(adapter.size(), 1000u);
  EXPECT_TRUE(adapter == Slurp("out/adapter_model.safetensors"));
  EXPECT_TRUE(Has("out/checkpoint-4/adapter_config.json"));
  const Ended listed = Temper({"inspect", "out/checkpoint-4"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("adapted modules"), std::string::npos) << listed.out;
  RunWell({"export", "--model", "out/checkpoint-4", "--output_dir", "merged"});
  for (const std::string& name : Must(PosixEnv().List(Path("out/checkpoint-4")))) {
    EXPECT_FALSE(name.starts_with("rank-")) << name;
  }
}

// If several ranks hold the same slice, one writes it.
TEST_F(MeshCheckpoint, CopiesAreWrittenOnce) {
  RunWell(Steps("full", "dp=2", "out"));
  const Manifest manifest = Must(ReadManifest(PosixEnv(), Path("out/checkpoint-4")));
  for (const Manifest::Tensor& t : manifest.tensors) {
    ASSERT_EQ(t.slices.size(), 1u) << t.name;
    EXPECT_EQ(t.slices[0].file, "state-00000-of-00002.safetensors");
  }
  EXPECT_EQ(manifest.identity.environment.value("mesh", ""), "dp=2");
}

}  // namespace
}  // namespace temper::program::mesh_checkpoint_test
