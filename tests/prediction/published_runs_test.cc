// Plans of published runs: others' runs on machines that are not here, compiled whole from their config.json and
// forecast on the cluster presets. docs/benchmarks.md compares the figures.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "base/project_folder_for_test.h"
#include "base/scratch_folder.h"
#include "config/command_line.h"
#include "config/run_options.h"
#include "graph/named_ops.h"
#include "model/families.h"
#include "plan/measured_step.h"
#include "plan/page.h"
#include "plan/plan_search.h"
#include "plan/planner.h"
#include "plan/remedies.h"

// gcc 12 at -O1 wrongly warns that a Result<Cluster> on the stack is deleted.
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"

namespace temper::published_runs_test {
namespace {

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}

Json ConfigOf(const std::string& name) {
  return Must(ReadJsonFile(PosixEnv(), fmt::format("{}/tests/prediction/configs/{}.json", kProjectFolder, name)));
}

// Cards of published runs that Temper has no kernels for.
const std::string kRtx2060 = std::string(kProjectFolder) + "/tests/prediction/clusters/RTX2060-6.yaml";
const std::string kV100 = std::string(kProjectFolder) + "/tests/prediction/clusters/V100-32.yaml";

struct Setting {
  Setting(const char* model_name, const std::string& cluster_name) : Setting(ConfigOf(model_name), cluster_name) {
    config.model.model = model_name;
  }
  Setting(const Json& model_config, const std::string& cluster_name)
      : json(model_config),
        model(Must(ModelFromConfig(json, "config.json"))),
        cluster(Must(OpenCluster(PosixEnv(), cluster_name))) {
    config.model.model = "config.json";
    config.batch.gradient_accumulation_steps = 1;
  }
  RunConfig Resolved() { return Must(Resolve(config, {.has_bf16 = cluster.has_bf16(), .today = "2026-01-01"})).config; }
  Planner planner() const { return Planner(*model, cluster); }
  PlannedRun Plan() {
    const RunConfig resolved = Resolved();
    return Must(planner().Plan(resolved, RanksOn(cluster, resolved)));
  }

  // "--mesh dp=2 --memory.recompute none"
  void Set(const std::string& settings) {
    std::istringstream words(settings);
    const std::vector<std::string> arguments(std::istream_iterator<std::string>(words), {});
    const OptionSet options = RunOptions(config);
    const Status set = ApplyCommandLine(Must(ReadCommandLine(arguments, options)), options);
    TEMPER_CHECK(set.ok()) << set.message();
  }

  Json json;
  std::shared_ptr<Model> model;  // shared by copies
  Cluster cluster;
  RunConfig config;
};

// Felafax, 2024: 16 rows of 64 tokens, 35 tokens/s published, 30.1 measured from its log.
Setting Felafax405B() {
  Setting s("llama-3.1-405b", "8xMI300X");
  s.config.lora.r = 8;
  s.config.lora.alpha = 16;
  s.config.batch.per_device_train_batch_size = 2;
  s.config.data.max_seq_len = 64;
  return s;
}

TEST(PublishedRuns, Llama405BWithLoraOnEightMI300X) {
  Setting s = Felafax405B();
  const PlannedRun p = s.Plan();
  EXPECT_EQ(p.run.mesh.mesh.ToString(), "fsdp=8");
  EXPECT_EQ(p.run.parameters, 405853388800);
  EXPECT_EQ(p.facts.tokens, 1024);
  EXPECT_TRUE(p.forecast.fits);
  // 811.7 GB of bf16 weights on eight devices: the minimum for any implementation.
  EXPECT_NEAR(static_cast<double>(p.run.train().peak.weights.v), 811.7e9 / 8, 0.01e9);
  EXPECT_GT(p.forecast.tokens_per_second, 35.0) << "an eager step with a host in between";
  EXPECT_STREQ(p.forecast.simulation.Bottleneck(), "communication");
}

TEST(PublishedRuns, Llama405BHasRoomForRowsOf16384Tokens) {
  Setting s = Felafax405B();
  s.config.machine.recompute = Recompute::kBlock;
  s.config.batch.per_device_train_batch_size = 1;
  s.config.data.max_seq_len = 16384;
  EXPECT_TRUE(s.Plan().forecast.fits);
}

TEST(PublishedRuns, TheSearchFindsTheResultInTheDocs) {
  Setting s = Felafax405B();
  const double as_published = s.Plan().forecast.tokens_per_second;
  const SearchResult r = Must(SearchPlans(s.planner(), s.Resolved(), SearchGoal::kThroughput));
  ASSERT_FALSE(r.best.empty());
  EXPECT_TRUE(r.best[0].fits && r.best[0].compiled);
  EXPECT_GT(r.best[0].tokens_per_second, 3 * as_published);
  const std::string& settings = r.best[0].settings;
  const std::string found =
      fmt::format("Here it finds `{}`, {:.0f} tokens/s",
                  settings.substr(0, settings.find(" --gradient_accumulation_steps")), r.best[0].tokens_per_second);
  std::string page = Must(ReadTextFile(PosixEnv(), std::string(kProjectFolder) + "/docs/howto/plan.md"));
  for (size_t at; (at = page.find("\n  ")) != page.npos;) page.replace(at, 3, " ");  // joins the lines of a list
  EXPECT_NE(page.find(found), std::string::npos) << "docs/howto/plan.md does not say: " << found;
}

// Llama-2-70B, full fine-tuning in bf16 by FSDP, 2023: 500 steps of 16 rows of 2048 tokens in 13.5 h.
Setting Fsdp70B() {
  Setting s("llama-2-70b", "2x8xA100-80-EFA");
  s.config.model.method = TrainMethod::kFull;
  s.config.data.max_seq_len = 2048;
  s.config.machine.recompute = Recompute::kBlock;
  return s;
}

TEST(PublishedRuns, Llama70BInFullOnSixteenA100) {
  Setting s = Fsdp70B();
  // 18 bytes per parameter: bf16 weight 2, f32 gradient 4, master 4, two moments 8. The published run had bf16
  // gradients: 16, or 69 GB of each GPU.
  s.config.memory.policy = TierPolicy::kDevice;
  const PlannedRun plain = s.Plan();
  // In total; a step of one micro-batch does not have all of its gradients at the same time as everything else.
  Bytes state{};
  for (const Buffer& b : plain.run.train().buffers) {
    if (b.role == Role::kWeight || b.role == Role::kGradient || b.role == Role::kOptimizerState)
      state += b.type.bytes();
  }
  const double per_parameter = static_cast<double>(state.v) * 16 / static_cast<double>(plain.run.parameters);
  EXPECT_NEAR(per_parameter, 18, 0.01);
  EXPECT_FALSE(plain.forecast.fits);

  // Without stored bf16 weights it fits (docs/benchmarks.md).
  const PlannedRun cast = Fsdp70B().Plan();
  EXPECT_TRUE(cast.run.memory.choice.casts);
  EXPECT_TRUE(cast.forecast.fits) << ToString(cast.forecast.bytes);
  EXPECT_EQ(cast.forecast.host_bytes, Bytes{});
  // With them some of the optimizer's states and gradients are on the host.
  Setting stored = Fsdp70B();
  stored.config.memory.bf16_weights = TrainedMatrices::kStored;
  const PlannedRun with_host = stored.Plan();
  EXPECT_TRUE(with_host.forecast.fits) << ToString(with_host.forecast.bytes);
  EXPECT_GT(with_host.forecast.host_bytes, GiB(3));
  EXPECT_LT(with_host.forecast.host_bytes, GiB(5));
  EXPECT_GT(with_host.forecast.simulation.step, cast.forecast.simulation.step);

  const auto remedies = Must(FindRemedies(s.planner(), s.Resolved(), plain));
  ASSERT_FALSE(remedies.empty());
  EXPECT_EQ(remedies[0].settings, "--memory.bf16_weights cast");
  EXPECT_TRUE(remedies[0].fits);

  s.config.mesh.fsdp = 8;
  s.config.mesh.tp = 2;
  s.config.mesh.overlap = false;
  s.config.batch.per_device_train_batch_size = 2;
  const PlannedRun split = s.Plan();
  EXPECT_EQ(split.facts.tokens, 16 * 2048);
  EXPECT_TRUE(split.forecast.fits) << ToString(split.forecast.bytes);
  EXPECT_LT(500 * split.forecast.simulation.step.v, 13.5 * 3600);
  EXPECT_GT(split.forecast.simulation.sent_between_hosts.v, 0);
}

// Bytes per parameter of each method, from compiled Programs; docs/design/planner.md has the table.
TEST(BytesPerParameter, AreThoseOfTheTable) {
  struct Row {
    TrainMethod method;
    ComputeType dtype;
    double weights, gradients, optimizer;
    RunConfig::Optimizer kept = {};
  };
  const RunConfig::Optimizer sgd = {.rule = UpdateRuleOf(Op::kSgd)};
  RunConfig::Optimizer plain = sgd;
  plain.settings.Set("sgd_momentum", 0);
  for (const Row& row :
       {Row{TrainMethod::kFull, ComputeType::kF32, 4, 4, 8}, Row{TrainMethod::kFull, ComputeType::kBf16, 2, 4, 12},
        Row{TrainMethod::kFull, ComputeType::kF32, 4, 4, 4, sgd},
        Row{TrainMethod::kFull, ComputeType::kBf16, 2, 4, 8, sgd},
        Row{TrainMethod::kFull, ComputeType::kF32, 4, 4, 0, plain},
        Row{TrainMethod::kFull, ComputeType::kBf16, 2, 4, 4, plain}}) {
    Setting s("opt-1.3b", "1xH200");
    s.config.optimizer = row.kept;
    s.config.model.method = row.method;
    s.config.model.dtype = row.dtype;
    s.config.data.max_seq_len = 128;
    s.config.batch.gradient_accumulation_steps = 2;  // otherwise gradients share memory with activations
    const PlannedRun p = s.Plan();
    const MemoryByClass& m = p.run.train().peak;
    const auto n = static_cast<double>(p.run.parameters);
    EXPECT_NEAR(static_cast<double>(m.weights.v) / n, row.weights, 0.01);
    EXPECT_NEAR(static_cast<double>(m.gradients.v) / n, row.gradients, 0.01);
    EXPECT_NEAR(static_cast<double>(m.optimizer.v) / n, row.optimizer, 0.01);
  }
  for (const auto& [dtype, weight, optimizer] :
       {std::tuple{ComputeType::kF32, 4.0, 8.0}, std::tuple{ComputeType::kBf16, 2.0, 12.0}}) {
    Setting s("opt-1.3b", "1xH200");
    s.config.model.dtype = dtype;
    s.config.data.max_seq_len = 128;
    s.config.batch.gradient_accumulation_steps = 2;
    const PlannedRun p = s.Plan();
    const MemoryByClass& m = p.run.train().peak;
    const auto frozen = static_cast<double>(p.run.parameters),
               trained = static_cast<double>(p.run.trainable_parameters);
    EXPECT_NEAR(static_cast<double>(m.weights.v) / frozen, weight, 0.01);
    EXPECT_NEAR(static_cast<double>(m.adapters.v) / trained, weight, 0.01);
    EXPECT_NEAR(static_cast<double>(m.gradients.v) / trained, 4, 0.01);
    EXPECT_NEAR(static_cast<double>(m.optimizer.v) / trained, optimizer, 0.01);
  }
}

// A device of 6 GB holds 1.3 B parameters with LoRA; in full they do not fit on it.
TEST(PublishedRuns, ASmallCardTrainsAdaptersOfAModelThatItCannotTrainInFull) {
  Setting s("opt-1.3b", kRtx2060);
  s.config.model.dtype = ComputeType::kBf16;
  s.config.data.max_seq_len = 512;
  s.config.memory.policy = TierPolicy::kDevice;
  EXPECT_TRUE(s.Plan().forecast.fits);
  s.config.model.method = TrainMethod::kFull;
  const PlannedRun full = s.Plan();
  EXPECT_FALSE(full.forecast.fits);
  const auto remedies = Must(FindRemedies(s.planner(), s.Resolved(), full));
  EXPECT_TRUE(std::any_of(remedies.begin(), remedies.end(),
                          [](const Remedy& r) { return r.settings == "--memory.tiers auto" && r.fits; }));
}

// Where memory is too small for a base in bf16, a processor's or a GPU's, one in fewer bits is offered.
TEST(PublishedRuns, AQuantisedBaseIsAmongTheRemedies) {
  for (const bool processor : {true, false}) {
    SCOPED_TRACE(processor);
    Setting s("opt-1.3b", kRtx2060);
    s.cluster.shared = processor;
    s.cluster.memory = GiB(2) + s.cluster.reserve;
    s.config.model.dtype = ComputeType::kBf16;
    s.config.machine.recompute = Recompute::kBlock;
    s.config.data.max_seq_len = 512;
    s.config.memory.policy = TierPolicy::kDevice;
    const PlannedRun plain = s.Plan();
    EXPECT_FALSE(plain.forecast.fits);
    const auto remedies = Must(FindRemedies(s.planner(), s.Resolved(), plain));
    for (const char* settings : {"--base_dtype int8", "--base_dtype nf4"}) {
      const auto found =
          std::find_if(remedies.begin(), remedies.end(), [&](const Remedy& r) { return r.settings == settings; });
      ASSERT_NE(found, remedies.end()) << settings;
      EXPECT_TRUE(found->fits) << settings << ": " << ToString(found->bytes);
    }
  }
}

// A tied embedding is a tenth of this model: what nf4 leaves too large by less than half of that fits with it in int8.
// A step that takes minutes because its base is read from the disk, and seconds with a smaller one.
TEST(PublishedRuns, ABaseInFewerBitsIsOfferedWhereItTurnsMinutesIntoSeconds) {
  Setting s("opt-1.3b", kRtx2060);
  s.cluster.memory = GiB(2) + s.cluster.reserve;
  s.cluster.host_memory = MiB(64);
  s.cluster.disk_read = 2e7;
  s.config.model.dtype = ComputeType::kBf16;
  s.config.machine.recompute = Recompute::kBlock;
  s.config.data.max_seq_len = 512;
  s.config.memory.disk = "folder";
  const PlannedRun slow = s.Plan();
  ASSERT_TRUE(slow.forecast.fits);
  ASSERT_GT(slow.forecast.simulation.step.v, 60);
  const std::vector<Remedy> faster = FindFasterBases(s.planner(), s.Resolved(), slow);
  ASSERT_EQ(faster.size(), 2u);
  EXPECT_EQ(faster[1].settings, "--base_dtype nf4");
  EXPECT_LT(faster[1].step.v, 10);
  const std::string text = FasterText(faster, slow.forecast);
  EXPECT_NE(text.find("a step takes " + ToString(slow.forecast.simulation.step)), text.npos) << text;
  EXPECT_NE(text.find("--base_dtype nf4 "), text.npos) << text;
  s.cluster.disk_read = 3e9;
  const PlannedRun fast = s.Plan();
  ASSERT_LT(fast.forecast.simulation.step.v, 60);
  EXPECT_TRUE(FindFasterBases(s.planner(), s.Resolved(), fast).empty());
}

TEST(PublishedRuns, AQuantisedEmbeddingIsTheRemedyBehindAQuantisedBase) {
  Setting s("opt-1.3b", kRtx2060);
  s.cluster.shared = true;
  s.config.model.dtype = ComputeType::kBf16;
  s.config.model.base_dtype = BaseType::kNf4;
  s.config.machine.recompute = Recompute::kBlock;
  s.config.batch.per_device_train_batch_size = 1;
  s.config.data.max_seq_len = 256;
  s.config.memory.policy = TierPolicy::kDevice;
  const PlannedRun quantised = s.Plan();
  ASSERT_TRUE(quantised.forecast.fits);
  s.cluster.memory = quantised.forecast.bytes - MiB(50) + s.cluster.reserve;
  const PlannedRun plain = s.Plan();
  EXPECT_FALSE(plain.forecast.fits);
  const auto remedies = Must(FindRemedies(s.planner(), s.Resolved(), plain));
  const auto found = std::find_if(remedies.begin(), remedies.end(),
                                  [](const Remedy& r) { return r.settings == "--embedding_dtype int8"; });
  ASSERT_NE(found, remedies.end());
  EXPECT_TRUE(found->fits) << ToString(found->bytes);
  // What the advice says is what following it gives.
  s.config.model.embedding_dtype = BaseType::kInt8;
  EXPECT_EQ(s.Plan().forecast.bytes, found->bytes);
}

// On GPUs a product on a quantised weight is a pass that dequantises it, and the product of bf16; the plan has scratch
// for the largest weight and the time of the passes: two of each weight in a step, and one more where it is recomputed.
TEST(PublishedRuns, AQuantisedBaseOnAGpuTakesThePassesThatDequantiseIt) {
  Setting s("opt-1.3b", "8xH100");
  s.config.model.dtype = ComputeType::kBf16;
  s.config.machine.recompute = Recompute::kNone;
  s.config.mesh.dp = 1;
  s.config.data.max_seq_len = 512;
  s.config.memory.policy = TierPolicy::kDevice;
  const auto plan = [&](BaseType base) {
    s.config.model.base_dtype = base;
    return s.Plan();
  };
  const PlannedRun plain = plan(BaseType::kAuto);
  const auto largest = [](const Program& program) {
    Bytes bytes{};
    for (const Segment& segment : program.segments) {
      for (const Instruction& i : segment.instructions) {
        if (i.op == Op::kLinear || i.op == Op::kLinearDx) bytes = std::max(bytes, ScratchOf(program, segment, i));
      }
    }
    return bytes;
  };
  constexpr int64_t kHidden = 2048, kFfn = 8192, kLayers = 24;
  for (const BaseType base : {BaseType::kInt8, BaseType::kNf4}) {
    const PlannedRun kept = plan(base);
    EXPECT_GE(largest(kept.run.train()), Bytes{kHidden * kFfn * 2});
    const ElementFormat format = *FormatOf(base);
    const auto moved = [&](int64_t rows, int64_t columns) {
      return static_cast<double>(rows * (format.RowBytes(columns) + 2 * columns));
    };
    // Nothing before the first block learns: its queries, keys and values need no gradient of their input.
    const double square = moved(kHidden, kHidden);
    const double bytes = 2 * kLayers * (4 * square + moved(kFfn, kHidden) + moved(kHidden, kFfn)) - 3 * square;
    const OpRate& memory = s.cluster.ShareOf(1).rates.OfClass(OpClass::kMemory, DType::kBF16);
    const double passes = bytes / memory.BytesPerSecond(GiB(1)) + (2 * 6 * kLayers - 3) * memory.launch.v;
    EXPECT_NEAR(kept.forecast.simulation.step.v - plain.forecast.simulation.step.v, passes, 0.02 * passes)
        << ToString(format);
  }
}

// Stages whose states are on a host that is too small for them: saving only device memory does not help.
TEST(PublishedRuns, IfTheHostIsTooSmallOnlySavingHostMemoryHelps) {
  Setting s("opt-1.3b", "8xH100");
  s.cluster.host_memory = GiB(8);
  s.config.model.method = TrainMethod::kFull;
  s.config.data.max_seq_len = 512;
  s.config.mesh.pp = 2;
  s.config.memory.optimizer = TierChoice::kHost;
  const PlannedRun planned = s.Plan();
  EXPECT_FALSE(planned.forecast.fits);
  EXPECT_LE(planned.forecast.bytes, planned.forecast.limit);
  const auto remedies = Must(FindRemedies(s.planner(), s.Resolved(), planned));
  EXPECT_TRUE(std::any_of(remedies.begin(), remedies.end(),
                          [](const Remedy& r) { return r.settings == "--method lora" && r.fits; }));
  for (const Remedy& r : remedies) EXPECT_LT(r.host_bytes, planned.forecast.host_bytes) << r.settings;
}

// Neither the card nor its host's memory holds the states: a disk does, and the plan shows the cost.
TEST(PublishedRuns, IfTheHostIsTooSmallADiskIsAmongTheRemedies) {
  Setting s("opt-1.3b", kRtx2060);
  s.cluster.host_memory = GiB(8);
  s.config.model.method = TrainMethod::kFull;
  s.config.model.dtype = ComputeType::kBf16;
  s.config.data.max_seq_len = 512;
  const PlannedRun full = s.Plan();
  EXPECT_FALSE(full.forecast.fits);
  const auto remedies = Must(FindRemedies(s.planner(), s.Resolved(), full));
  const auto disk = std::find_if(remedies.begin(), remedies.end(),
                                 [](const Remedy& r) { return r.settings.starts_with("--memory.disk"); });
  ASSERT_NE(disk, remedies.end());
  EXPECT_TRUE(disk->fits);
  EXPECT_LT(disk->tokens_per_second, full.forecast.tokens_per_second);
  // A plan with these settings searches longer, and finds the same or better.
  s.config.memory.disk = "spill";
  s.config.machine.recompute = Recompute::kBlock;
  const PlannedRun spilled = s.Plan();
  EXPECT_TRUE(spilled.forecast.fits);
  EXPECT_GE(spilled.forecast.tokens_per_second, disk->tokens_per_second);
  EXPECT_LE(spilled.forecast.host_bytes, GiB(8));
  EXPECT_GT(spilled.forecast.disk_bytes, GiB(8));
}

// Remedies of a model of many blocks that certainly do not fit are extrapolated from few of them. What each says is
// what a plan with its settings says.
TEST(PublishedRuns, RemediesOfManyBlocksAreAsPlansOfWholeModels) {
  const Json config = Must(ParseJson(R"({"architectures": ["OPTForCausalLM"], "vocab_size": 512, "hidden_size": 64,
      "ffn_dim": 256, "num_hidden_layers": 80, "num_attention_heads": 2, "word_embed_proj_dim": 64,
      "max_position_embeddings": 512})",
                                     "config.json"));
  Setting s(config, "RTX3090-24");
  s.cluster.memory = MiB(12) + s.cluster.reserve;
  s.cluster.host_memory = MiB(28);
  s.config.model.method = TrainMethod::kFull;
  s.config.model.dtype = ComputeType::kBf16;
  s.config.batch.per_device_train_batch_size = 1;
  s.config.batch.gradient_accumulation_steps = 5;
  s.config.data.max_seq_len = 256;
  const PlannedRun full = s.Plan();
  ASSERT_FALSE(full.forecast.fits);
  int extrapolated = 0, fit = 0;
  for (const Remedy& r : Must(FindRemedies(s.planner(), s.Resolved(), full))) {
    SCOPED_TRACE(r.settings);
    Setting same = s;
    same.Set(r.settings);
    const Forecast whole = Must(s.planner().PlanQuickly(same.Resolved(), 1)).forecast;
    EXPECT_EQ(r.fits, whole.fits);
    extrapolated += !r.compiled;
    fit += r.fits;
    if (r.compiled) continue;
    EXPECT_NEAR(static_cast<double>(r.bytes.v), static_cast<double>(whole.bytes.v),
                0.01 * static_cast<double>(whole.bytes.v));
    EXPECT_NEAR(r.step.v, whole.simulation.step.v, 0.01 * whole.simulation.step.v);
    EXPECT_NEAR(r.tokens_per_second, whole.tokens_per_second, 0.01 * whole.tokens_per_second);
  }
  EXPECT_GE(extrapolated, 2) << "more recomputation, shorter rows";
  EXPECT_GE(fit, 2) << "adapters, and the disk";
}

// Colossal-AI, 2022: 1.5 B parameters on an RTX 2060 of 6 GB, 18 B on an RTX 3090 of 24 GB, 24 B on a V100 of 32 GB, in
// full, with the host's memory (of unknown size). Ours: 18 bytes per parameter, device and host together.
TEST(PublishedRuns, ModelsThatOnlyFitWithTheHostsMemory) {
  struct Row {
    std::string cluster;
    int64_t hidden, blocks;  // 12 hidden^2 parameters per block, in the shape of OPT
    double billions;
    Bytes host;  // that the machine must have: the plan's bytes, rounded up to common sizes
  };
  for (const Row& row : {Row{kRtx2060, 1600, 48, 1.56, GiB(32)}, Row{"RTX3090-24", 6144, 40, 18.4, GiB(384)},
                         Row{kV100, 6144, 53, 24.3, GiB(512)}}) {
    const Json config = Must(ParseJson(
        fmt::format(R"({{"architectures": ["OPTForCausalLM"], "vocab_size": 50272, "hidden_size": {}, "ffn_dim": {},
            "num_hidden_layers": {}, "num_attention_heads": {}, "word_embed_proj_dim": {}, "max_position_embeddings": 2048}})",
                    row.hidden, 4 * row.hidden, row.blocks, row.hidden / 64, row.hidden),
        "config.json"));
    Setting s(config, row.cluster);
    s.cluster.host_memory = row.host;
    s.config.model.method = TrainMethod::kFull;
    s.config.model.dtype = ComputeType::kBf16;
    s.config.machine.recompute = Recompute::kBlock;
    s.config.data.max_seq_len = 1024;
    const PlannedRun p = s.Plan();
    EXPECT_NEAR(static_cast<double>(p.run.parameters) * 1e-9, row.billions, 0.05) << row.cluster;
    EXPECT_TRUE(p.forecast.fits) << row.cluster;
    const double state = 18 * static_cast<double>(p.run.parameters);
    const double there = static_cast<double>((p.forecast.bytes + p.forecast.host_bytes).v);
    EXPECT_GT(there, state);
    // Besides the state: activations, copies, scratch; on the host, transfers.
    EXPECT_LT(there, state + static_cast<double>(p.forecast.limit.v)) << row.cluster;
    RecordProperty(
        row.cluster.substr(row.cluster.rfind('/') + 1),
        fmt::format("{:.2f} B parameters: {} of the device, {} of the host's memory, {:.1f} s per step of {} "
                    "tokens, bound by {}",
                    static_cast<double>(p.run.parameters) * 1e-9, ToString(p.forecast.bytes),
                    ToString(p.forecast.host_bytes), p.forecast.simulation.step.v, p.facts.tokens,
                    p.forecast.simulation.Bottleneck()));
  }
}

TEST(Search, LooksAtHundredsOfCandidatesAndCompilesTheWinner) {
  Setting s("llama-3.1-8b", "8xH100");
  s.config.data.max_seq_len = 2048;
  s.config.batch.gradient_accumulation_steps = 8;
  const SearchResult r = Must(SearchPlans(s.planner(), s.Resolved(), SearchGoal::kThroughput));
  EXPECT_GE(r.considered, 200);
  ASSERT_FALSE(r.best.empty());
  EXPECT_TRUE(r.best[0].fits && r.best[0].compiled);
  EXPECT_GE(r.best[0].tokens_per_second, s.Plan().forecast.tokens_per_second);
}

// Also for candidates that were not compiled whole: few blocks and micro-batches predict all of them. Work of only the
// last micro-batch (sums over dp, an update without clipping) is not part of each.
TEST(Search, PredictsTheSameAsAPlanWithTheSameSettings) {
  Setting s("llama-3.1-8b", "8xH100");
  s.cluster.devices_per_host = 4;
  s.config.data.max_seq_len = 8192;
  s.config.batch.per_device_train_batch_size = 1;
  s.config.batch.gradient_accumulation_steps = 8;
  s.config.optimizer.max_grad_norm = 0;
  const SearchResult r = Must(SearchPlans(s.planner(), s.Resolved(), SearchGoal::kThroughput));
  int promised = 0, as_planned = 0;
  for (const Candidate& c : r.best) {
    if (c.compiled || c.settings.find("pp=") != std::string::npos) continue;
    Setting same = s;
    same.Set(c.settings);
    const double planned = same.Plan().forecast.simulation.step.v;
    EXPECT_NEAR(c.step.v, planned, 0.01 * planned) << c.settings;
    ++promised;
    as_planned += std::abs(c.step.v - planned) < 1e-4 * planned;
  }
  EXPECT_GE(as_planned, 3) << "of " << promised << ": of others no line in the blocks is exact";
}

TEST(Search, TheFewestDevicesThatHoldTheRun) {
  Setting s("llama-3.1-8b", "8xH100");
  s.config.data.max_seq_len = 1024;
  s.config.model.method = TrainMethod::kFull;  // 18 bytes x 8 B parameters: 144 GB
  const SearchResult r = Must(SearchPlans(s.planner(), s.Resolved(), SearchGoal::kFewestDevices));
  ASSERT_FALSE(r.best.empty());
  EXPECT_TRUE(r.best[0].fits);
  EXPECT_EQ(r.best[0].devices, 2);
}

// Two hosts with a slow network between them: gathering weights over it takes longer than passing activations.
TEST(Search, FindsAPipelineWhereTheNetworkIsSlow) {
  Setting s("llama-3.1-8b", "2x8xA100-80-EFA");
  s.cluster.devices_per_host = 4;
  s.cluster.between_hosts = {2e9, {30e-6}};
  s.config.model.method = TrainMethod::kFull;
  s.config.data.max_seq_len = 2048;
  s.config.batch.gradient_accumulation_steps = 4;
  s.config.machine.recompute = Recompute::kSelective;
  const SearchResult r = Must(SearchPlans(s.planner(), s.Resolved(), SearchGoal::kThroughput));
  ASSERT_FALSE(r.best.empty());
  EXPECT_TRUE(r.best[0].fits && r.best[0].compiled);
  EXPECT_NE(r.best[0].settings.find("pp="), std::string::npos) << r.best[0].settings;
  // A plan with these settings predicts the same.
  EXPECT_GT(r.best[0].tokens_per_second, s.Plan().forecast.tokens_per_second);
}

TEST(Search, KeepsBlocksGatheredOnlyIfThatSavesTime) {
  Setting s("llama-3.1-8b", "2x8xA100-80-EFA");
  s.cluster.devices_per_host = 4;
  s.config.model.method = TrainMethod::kFull;
  s.config.data.max_seq_len = 2048;
  s.config.batch.gradient_accumulation_steps = 8;
  const SearchResult r = Must(SearchPlans(s.planner(), s.Resolved(), SearchGoal::kThroughput));
  int keep = 0;
  for (const Candidate& c : r.best) {
    const size_t at = c.settings.find(" --mesh.gathered_blocks");
    keep += at != std::string::npos;
    for (const Candidate& less : r.best) {
      if (at == std::string::npos || less.settings != c.settings.substr(0, at)) continue;
      EXPECT_GT(less.step, c.step) << c.settings;
    }
  }
  EXPECT_GE(keep, 1);
  EXPECT_EQ(r.best[0].settings.find("gathered_blocks"), std::string::npos)
      << "nothing is left to hide: " << r.best[0].settings;
}

// The run does not fit on one card but in the host's memory, and the search says how much is needed.
TEST(Search, UsesTheHostIfNoCandidateFits) {
  Setting s("opt-1.3b", kRtx2060);
  s.config.model.method = TrainMethod::kFull;
  s.config.model.dtype = ComputeType::kBf16;
  s.config.data.max_seq_len = 512;
  const SearchResult r = Must(SearchPlans(s.planner(), s.Resolved(), SearchGoal::kThroughput));
  ASSERT_FALSE(r.best.empty());
  EXPECT_TRUE(r.best[0].fits && r.best[0].compiled);
  EXPECT_GT(r.best[0].host, GiB(10));
  EXPECT_LE(r.best[0].bytes, r.best[0].limit);
  EXPECT_NE(SearchText(r).find("of host memory"), std::string::npos);
}

TEST(Page, ShowsTiersTheirMovesAndTheirQueuesBesideAMeasuredStep) {
  Setting s("opt-1.3b", kRtx2060);
  s.config.model.method = TrainMethod::kFull;
  s.config.model.dtype = ComputeType::kBf16;
  s.config.data.max_seq_len = 256;
  s.config.batch.gradient_accumulation_steps = 8;
  const PlannedRun p = Must(s.planner().Plan(s.Resolved(), 1, /*keep_events=*/true));
  ASSERT_GT(p.run.train().host.bytes, Bytes{});
  // Reads back the output of `--profile`.
  const ScratchFolder folder;
  const std::string trace = folder / "trace.json";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), trace, TraceText(p.forecast.simulation)).ok());
  const std::vector<TraceRow> measured = Must(ReadMeasuredStep(PosixEnv(), trace));
  const std::string page = PlanPage(p.run.train(), {.model = "opt", .tiers = p.run.MemoryText()},
                                    {.cluster = &s.cluster, .forecast = &p.forecast}, measured);
  const size_t begin = page.find("application/json\">") + 18;
  const Json data = Must(ParseJson(page.substr(begin, page.find("</script>", begin) - begin), "page"));
  EXPECT_EQ(data["tiers"].size(), 2u);
  EXPECT_EQ(data["tiers"][1][0], "host");
  EXPECT_EQ(data["tiers"][1][1], p.run.train().host.bytes.v);
  EXPECT_GE(data["moves"].size(), 2u);
  EXPECT_NE(data["facts"]["tiers"].get<std::string>().find("on the host"), std::string::npos);
  for (const char* side : {"planned", "measured"}) {
    std::set<std::string> queues;
    for (const Json& event : data[side]) queues.insert(data["queues"][event[4].get<size_t>()]);
    EXPECT_EQ(queues, (std::set<std::string>{"compute", "evict to host", "fetch from host"})) << side;
  }
  // Micro-batches 3 to 7 of 8 are not shown; on each side their time on the compute queue is one interval.
  for (const char* side : {"planned", "measured"}) {
    std::vector<Json> left_out;
    for (const Json& interval : data["left_out"][side]) {
      if (interval[0] == 0) left_out.push_back(interval);
    }
    ASSERT_EQ(left_out.size(), 1u) << side;
    EXPECT_EQ(left_out[0][3], 2);
    EXPECT_EQ(left_out[0][4], 6);
    for (const Json& event : data[side]) {
      const double begin = event[5], end = begin + event[6].get<double>();
      if (event[4] != 0) continue;
      EXPECT_TRUE(end <= left_out[0][1].get<double>() + 1e-6 || begin >= left_out[0][2].get<double>() - 1e-6);
    }
  }
  EXPECT_EQ(data["fits"], true);
  EXPECT_NE(data["verdict"].get<std::string>().find("It fits: "), std::string::npos);
  double parts = 0;
  for (const auto& [name, seconds] : data["parts"].items()) parts += seconds.get<double>();
  EXPECT_NEAR(parts, data["step"].get<double>(), 1e-6 * parts);
  EXPECT_GT(data["parts"]["waiting for moves"].get<double>() + data["parts"]["moves"].get<double>(), 0);
}

TEST(Page, IsOneFileThatNeedsNoNetwork) {
  Setting s("llama-3.1-8b", "8xH100");
  s.config.data.max_seq_len = 512;
  const RunConfig config = s.Resolved();
  const PlannedRun p = Must(s.planner().Plan(config, 8, /*keep_events=*/true));
  const PlanFacts facts{.model = "</script><b>",
                        .architecture = "Llama",
                        .method = "lora",
                        .dtype = "bf16",
                        .recompute = "none",
                        .mesh = "fsdp=8",
                        .ranks = 8,
                        .data_ranks = 8,
                        .distinct = p.run.distinct};
  const std::string page =
      PlanPage(p.run.train(), facts, {.cluster = &s.cluster, .forecast = &p.forecast}, p.forecast.simulation.events);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("href="), std::string::npos);
  EXPECT_EQ(page.find("url("), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos) << "a name from outside becomes markup";
  const size_t begin = page.find("application/json\">") + 18;
  const Json data = Must(ParseJson(page.substr(begin, page.find("</script>", begin) - begin), "page"));
  EXPECT_EQ(data["title"], "</script><b>, LoRA in bf16, fsdp=8, on 8xH100");
  const std::string speed = data["speed"];
  EXPECT_TRUE(std::regex_search(speed, std::regex(", [0-9]{1,3}(,[0-9]{3})+ tokens/s, MFU "))) << speed;
  EXPECT_GT(data["planned"].size(), 100u);
  EXPECT_GT(data["measured"].size(), 100u);
  EXPECT_GT(data["memory"]["temporaries"].size(), 50u);
  EXPECT_GT(data["tensors"].size(), 10u);
}

}  // namespace
}  // namespace temper::published_runs_test
