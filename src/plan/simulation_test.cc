#include "plan/simulation.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/scratch_folder.h"
#include "compile/train_step.h"
#include "format/json.h"
#include "model/families.h"
#include "model/model.h"
#include "plan/forecast.h"
#include "plan/live_memory.h"
#include "plan/measured_step.h"
#include "plan/slow_devices_for_test.h"

// gcc 12 at -O1 believes that a Result<Cluster> on the stack is deleted.
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"

namespace temper::simulation_test {
namespace {

constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 256,
  "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 512,
  "max_position_embeddings": 1024})";

Program Compiled(int fsdp, int micro_batches, Recompute recompute = Recompute::kNone, bool overlap = true,
                 const MemorySpec& memory = {}, const char* config = kConfig, double max_norm = 1, int cp = 1) {
  const auto model = ModelFromConfig(*ParseJson(config, "c"), "c");
  TEMPER_CHECK(model.ok()) << model.status().message();
  const ForwardSpec spec{.tokens = 256 * fsdp, .row = 128, .training = true};
  Graph forward = (*model)->Forward(spec);
  TrainAllWeights(&forward);
  ForwardSpec eval = spec;
  eval.training = false;
  StepSpec step{.micro_batches = micro_batches, .recompute = recompute, .memory = memory};
  step.update.max_norm = max_norm;
  step.mesh.mesh.set_size(Axis::kFsdp, fsdp);
  step.mesh.mesh.set_size(Axis::kCp, cp);
  step.mesh.overlap = overlap;
  const auto compiled = CompileGraphs(TrainAndEval(forward, (*model)->Forward(eval)), step);
  TEMPER_CHECK(compiled.ok()) << compiled.status().message();
  return compiled->programs.first();
}

Mesh Fsdp(int n) {
  Mesh mesh;
  mesh.set_size(Axis::kFsdp, n);
  return mesh;
}

double SumOfTerms(const StepEstimate& s) {
  return s.arithmetic.v + s.memory.v + s.launches.v + s.collectives.v + s.moves.v + s.waiting.v + s.stalled.v;
}

TEST(Simulate, OnOneDeviceAStepIsTheSumOfItsInstructions) {
  const Program program = Compiled(1, 2);
  const Cluster cluster = SlowDevices(4);
  const StepEstimate s = Simulate(program, Mesh(), cluster, /*keep_events=*/true);
  const Cost cost = CostOfStep(program);
  EXPECT_NEAR(s.step.v, SumOfTerms(s), 1e-12);
  EXPECT_NEAR(s.memory.v, static_cast<double>((cost.read + cost.written).v) / 100e9, 1e-12);
  EXPECT_NEAR(s.launches.v, static_cast<double>(s.events.size()) * 1e-6, 1e-9);
  EXPECT_EQ(s.waiting.v + s.collectives.v + s.hidden.v, 0);
  ASSERT_EQ(s.micro_batches.size(), 2u);
  EXPECT_LT(s.micro_batches[1], s.step);
}

// Few of its micro-batches are walked, unless a trace is asked for.
TEST(Simulate, AStepOfManyMicroBatchesTakesWhatAWalkThroughAllOfThemTakes) {
  constexpr int kMicroBatches = 200;
  MemorySpec in_tiers;
  in_tiers.policy = TierPolicy::kHost;
  Cluster cluster = SlowDevices(2);
  cluster.shared = true;
  for (const auto& [ranks, memory] : {std::pair{1, in_tiers}, {2, MemorySpec()}}) {
    const Program program = Compiled(ranks, kMicroBatches, Recompute::kNone, true, memory);
    const StepEstimate walked = Simulate(program, Fsdp(ranks), cluster, /*keep_events=*/true);
    const StepEstimate few = Simulate(program, Fsdp(ranks), cluster);
    const auto expect_near = [](Seconds a, Seconds b) { EXPECT_NEAR(a.v, b.v, 1e-9 * b.v); };
    expect_near(few.step, walked.step);
    for (Seconds StepEstimate::*const term :
         {&StepEstimate::arithmetic, &StepEstimate::memory, &StepEstimate::launches, &StepEstimate::collectives,
          &StepEstimate::moves, &StepEstimate::waiting, &StepEstimate::stalled, &StepEstimate::hidden}) {
      expect_near(few.*term, walked.*term);
    }
    EXPECT_GT(ranks == 1 ? walked.hidden : walked.waiting + walked.collectives, Seconds{});
    EXPECT_EQ(few.sent_within_host, walked.sent_within_host);
    ASSERT_EQ(few.micro_batches.size(), static_cast<size_t>(kMicroBatches));
    for (size_t m = 0; m < few.micro_batches.size(); ++m) expect_near(few.micro_batches[m], walked.micro_batches[m]);
    const auto of = [](const StepEstimate& s) {
      std::map<std::pair<Op, Phase>, OpTotal> ops;
      for (const OpTotal& total : s.ops) ops[{total.op, total.phase}] = total;
      return ops;
    };
    const auto of_few = of(few);
    for (const auto& [key, total] : of(walked)) {
      EXPECT_EQ(of_few.at(key).runs, total.runs);
      expect_near(of_few.at(key).seconds, total.seconds);
    }
  }
}

TEST(Simulate, CollectivesInTheBackgroundHideBesideKernels) {
  const Cluster cluster = SlowDevices(4);
  const StepEstimate with = Simulate(Compiled(4, 2), Fsdp(4), cluster);
  const StepEstimate without = Simulate(Compiled(4, 2, Recompute::kNone, /*overlap=*/false), Fsdp(4), cluster);
  EXPECT_GT(with.hidden.v, 0);
  EXPECT_EQ(without.hidden.v, 0);
  EXPECT_LT(with.step.v, without.step.v);
  EXPECT_NEAR(with.step.v, SumOfTerms(with), 1e-12);
  // Hidden plus waiting time equals the blocking time without overlap,
  // except for the last block's weights, which are gathered once.
  const auto sent = [](const StepEstimate& s) { return static_cast<double>(s.sent_within_host.v); };
  EXPECT_LT(sent(with), sent(without));
  const double in_line = without.collectives.v * sent(with) / sent(without);
  EXPECT_NEAR(with.collectives.v + with.waiting.v + with.hidden.v, in_line, 0.02 * in_line);
}

// A step takes not the sum of computing and moving, but the larger of the two, in a model of many blocks, in which only
// the first and the last collective cannot overlap with kernels.
TEST(Simulate, OnSlowLinksAStepTakesTheLargerOfComputingAndMoving) {
  constexpr char kDeep[] = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 128,
      "num_hidden_layers": 40, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 256,
      "max_position_embeddings": 1024})";
  const Program overlapped = Compiled(4, 2, Recompute::kNone, true, {}, kDeep);
  const Program in_line = Compiled(4, 2, Recompute::kNone, false, {}, kDeep);
  Cluster cluster = SlowDevices(4);
  Link& link = cluster.shares[1].link;
  link = {.bytes_per_second = 1e9, .latency = {}};
  const double moved_at_1e9 = Simulate(in_line, Fsdp(4), cluster).collectives.v;
  for (const double ratio : {0.25, 0.5, 0.75, 1.0, 1.5, 3.0}) {
    const StepEstimate once = Simulate(in_line, Fsdp(4), cluster);
    const double computing = once.step.v - once.collectives.v, moving = ratio * computing;
    link.bytes_per_second = 1e9 * moved_at_1e9 / moving;
    const double step = Simulate(overlapped, Fsdp(4), cluster).step.v;
    EXPECT_LE(step, 1.10 * std::max(computing, moving)) << "moving " << ratio << " of computing";
    EXPECT_GE(step, std::max(computing, moving) * (1 - 1e-9));
    EXPECT_NEAR(Simulate(in_line, Fsdp(4), cluster).step.v, computing + moving, 1e-9 * step)
        << "without overlap, the sum";
  }
}

TEST(Simulate, AShiftTakesOneTurnOfItsRingAndAGatherAll) {
  const Program program = Compiled(1, 1, Recompute::kNone, /*overlap=*/false, {}, kConfig, 1, /*cp=*/4);
  Mesh mesh;
  mesh.set_size(Axis::kCp, 4);
  Cluster cluster = SlowDevices(4);
  cluster.shares[1].link = {.bytes_per_second = 1e18, .latency = {1}};
  const StepEstimate s = Simulate(program, mesh, cluster, /*keep_events=*/true);
  const auto turns = [&](Op op) {
    std::set<int> found;
    for (const TraceRow& e : s.events) {
      if (e.op == op) found.insert(static_cast<int>(std::lround(e.duration.v)));
    }
    return found;
  };
  EXPECT_EQ(turns(Op::kShift), std::set<int>{1});
  EXPECT_EQ(turns(Op::kAllGather), std::set<int>{3});
  EXPECT_EQ(turns(Op::kReduceScatter), std::set<int>{3});
  EXPECT_EQ(turns(Op::kAllReduce), std::set<int>{6});
}

TEST(Simulate, RanksThatShareACpuHideNothing) {
  Cluster cluster = SlowDevices(4);
  cluster.shared = true;
  cluster.shares[4] = cluster.shares[1];
  const StepEstimate s = Simulate(Compiled(4, 2), Fsdp(4), cluster);
  EXPECT_EQ(s.hidden.v + s.waiting.v, 0);
  EXPECT_GT(s.collectives.v, 0);
}

// No link exceeds its speed, no wait is counted twice, and a faster link does not slow the step.
TEST(Simulate, MovesUseTheirLinkAndHideBesideKernels) {
  Cluster cluster = SlowDevices(4);
  cluster.host_memory = GiB(64);
  const Program all_there = Compiled(1, 2);
  const StepEstimate device = Simulate(all_there, Mesh(), cluster);
  EXPECT_EQ(device.moves.v + device.stalled.v, 0);
  MemorySpec memory{.device = all_there.arena_bytes / 2};
  memory.rates = cluster.ShareOf(1).rates;
  double before = 1e9;
  for (const double rate : {1e9, 10e9, 1e12}) {
    cluster.to_device = cluster.from_device = rate;
    memory.links = cluster.LinksOf(1);
    const Program program = Compiled(1, 2, Recompute::kNone, true, memory);
    EXPECT_LE(program.arena_bytes, memory.device);
    EXPECT_GT(program.host.bytes.v, 0);
    const StepEstimate s = Simulate(program, Mesh(), cluster);
    EXPECT_NEAR(s.step.v, SumOfTerms(s), 1e-9);
    ASSERT_FALSE(TrafficOfStep(program).empty());
    for (const LinkTraffic& t : TrafficOfStep(program)) EXPECT_GE(s.step.v, static_cast<double>(t.bytes.v) / rate);
    EXPECT_LE(s.step.v, 1.05 * before) << "other tiers are chosen for another link: near the best of those tried";
    before = s.step.v;
    if (rate == 1e9) {
      EXPECT_STREQ(s.Bottleneck(), "moves between memory tiers");
    }
  }
}

// Every queue runs one item at a time, and no item starts before those that it waits for.
TEST(Simulate, EventsOfAQueueFollowEachOther) {
  const StepEstimate s = Simulate(Compiled(4, 3, Recompute::kBlock), Fsdp(4), SlowDevices(4), true);
  Seconds compute, communicate;
  int background = 0;
  for (const TraceRow& e : s.events) {
    Seconds& free = std::string_view(e.queue) == "compute" ? compute : communicate;
    background += &free == &communicate;
    ASSERT_GE(e.begin.v, free.v - 1e-15);
    free = {e.begin.v + e.duration.v};
  }
  EXPECT_GT(background, 10);
  EXPECT_NEAR(s.step.v, std::max(compute.v, communicate.v), 1e-12);
}

TEST(Simulate, MoreMicroBatchesCostTheSameEach) {
  const StepEstimate two = Simulate(Compiled(4, 2), Fsdp(4), SlowDevices(4));
  const StepEstimate five = Simulate(Compiled(4, 5), Fsdp(4), SlowDevices(4));
  const double each = two.micro_batches[1].v - two.micro_batches[0].v;
  EXPECT_NEAR(five.step.v, two.step.v + 3 * each, 0.02 * five.step.v);
}

// The programs of all stages of a model that consists almost only of blocks.
std::vector<Program> CompiledStages(int stages, int micro_batches, PipelineKind kind) {
  const auto model = ModelFromConfig(*ParseJson(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 8,
      "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8,
      "intermediate_size": 512, "max_position_embeddings": 1024})",
                                                "c"),
                                     "c");
  TEMPER_CHECK(model.ok()) << model.status().message();
  const ForwardSpec spec{.tokens = 512, .row = 128, .training = true};
  Graph forward = (*model)->Forward(spec);
  TrainAllWeights(&forward);
  ForwardSpec eval = spec;
  eval.training = false;
  std::vector<Program> programs;
  for (int stage = 0; stage < stages; ++stage) {
    StepSpec step{.micro_batches = micro_batches};
    step.mesh.mesh.set_size(Axis::kPp, stages);
    step.mesh.rank = stage;
    step.mesh.pipeline = {.kind = kind, .chunks_per_stage = kind == PipelineKind::kInterleaved ? 2 : 1};
    const auto compiled = CompileGraphs(TrainAndEval(forward, (*model)->Forward(eval)), step);
    TEMPER_CHECK(compiled.ok()) << compiled.status().message();
    programs.push_back(compiled->programs.first());
  }
  return programs;
}

std::vector<StepEstimate> SimulateStages(const std::vector<Program>& programs, const Cluster& cluster) {
  std::vector<const Program*> stages;
  for (const Program& program : programs) stages.push_back(&program);
  Mesh mesh;
  mesh.set_size(Axis::kPp, static_cast<int>(stages.size()));
  return Simulate(stages, mesh, cluster, /*keep_events=*/true);
}

Cluster WithFreeLinks() {
  Cluster cluster = SlowDevices(4);
  cluster.shares[1].link = {.bytes_per_second = 1e18, .latency = {}};
  return cluster;
}

// When the last micro-batch has left the first stage: the pipeline without the update.
double EndOfBackward(const StepEstimate& first_stage) {
  double end = 0;
  for (const TraceRow& e : first_stage.events) {
    if (e.phase == Phase::kBackward && std::string_view(e.queue) == "compute")
      end = std::max(end, e.begin.v + e.duration.v);
  }
  return end;
}

TEST(SimulateStages, BubblesAreThoseOfTheClosedForms) {
  for (const int p : {2, 4}) {
    for (const int m : {4, 8}) {
      for (const auto& [kind, chunks] :
           {std::pair(PipelineKind::kOneForwardOneBackward, 1), std::pair(PipelineKind::kInterleaved, 2),
            std::pair(PipelineKind::kGpipe, 1)}) {
        SCOPED_TRACE(std::string(ToString(kind)) + " " + std::to_string(p) + " stages, " + std::to_string(m));
        const auto stages = SimulateStages(CompiledStages(p, m, kind), WithFreeLinks());
        const double span = EndOfBackward(stages[0]);
        double busy = 0;
        for (const TraceRow& e : stages[0].events) {
          if (e.phase != Phase::kUpdate && std::string_view(e.queue) == "compute") busy += e.duration.v;
        }
        EXPECT_NEAR(1 - busy / span, (p - 1.0) / (chunks * m + p - 1.0), 0.02);
        for (const StepEstimate& s : stages) {
          EXPECT_NEAR(s.step.v, stages[0].step.v, 1e-3 * s.step.v)
              << "the norm needs all stages; then each updates its own weights";
          EXPECT_NEAR(s.step.v, SumOfTerms(s) + s.stages.v, 1e-12);
        }
      }
    }
  }
}

TEST(SimulateStages, SlowLinksAreWaitedFor) {
  const auto programs = CompiledStages(2, 4, PipelineKind::kOneForwardOneBackward);
  Cluster slow = WithFreeLinks();
  const double free = SimulateStages(programs, slow)[0].step.v;
  slow.shares[1].link.latency = {free};  // longer than all work that could hide it
  const auto stages = SimulateStages(programs, slow);
  // At least there and back for the first micro-batch; transfers of the others in one direction never overlap.
  EXPECT_GT(stages[0].step.v, free * 3);
  EXPECT_GT(stages[0].stages.v, free * 2);
  EXPECT_GT(stages[0].sent_within_host.v, 4 * 512 * 256 * 4) << "a micro-batch's activations";
}

TEST(LiveMemory, PeaksWhereTheProgramSaysItDoes) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
    const Program program = Compiled(1, 2, recompute);
    const LiveMemory memory = FindLiveMemory(program, 5);
    const Bytes peak = *std::max_element(memory.temporaries.begin(), memory.temporaries.end());
    EXPECT_EQ(peak, program.peak.activations + program.peak.workspace);
    ASSERT_EQ(memory.at_fullest.size(), 5u);
    EXPECT_GE(memory.at_fullest[0].bytes, memory.at_fullest[4].bytes);
  }
}

// The last micro-batch differs: it may sum gradients over ranks, and update weights.
TEST(LiveMemory, IncludesTheLastMicroBatch) {
  for (const double max_norm : {1.0, 0.0}) {
    const auto shown = [&](int micro_batches) {
      const Program program = Compiled(1, micro_batches, Recompute::kNone, true, {}, kConfig, max_norm);
      return FindLiveMemory(program, 0).temporaries;
    };
    const std::vector<Bytes> three = shown(3);
    EXPECT_EQ(shown(5), three);
    EXPECT_GT(three.size(), shown(2).size() * 4 / 3);
  }
}

TEST(Forecast, FitsIfTheArenaIsNoLargerThanTheDevice) {
  Cluster cluster = SlowDevices(4);
  const Program program = Compiled(1, 1);
  cluster.memory = program.arena_bytes;
  const StepFacts facts{.tokens = 256, .model_flops = {1e9}};
  const std::vector<const Program*> alone = {&program};
  EXPECT_TRUE(ForecastOf(alone, Mesh(), cluster, facts).fits);
  cluster.memory = program.arena_bytes - Bytes{1};
  cluster.price_per_device_hour = 3.6;
  const Forecast f = ForecastOf(alone, Mesh(), cluster, facts);
  EXPECT_FALSE(f.fits);
  EXPECT_NEAR(f.tokens_per_second, 256 / f.simulation.step.v, 1e-6);
  EXPECT_NEAR(f.mfu, 1e9 / (1e12 * f.simulation.step.v), 1e-9);
  EXPECT_NEAR(f.price_per_million_tokens, 1e-3 / f.tokens_per_second * 1e6, 1e-9);
}

// The simulated trace has the format of a measured one: reading it gives the same step.
TEST(MeasuredStep, ReadsSimulatedTraces) {
  const StepEstimate s = Simulate(Compiled(4, 2), Fsdp(4), SlowDevices(4), true);
  const ScratchFolder folder;
  const std::string path = folder / "trace.json";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, TraceText(s)).ok());
  const auto rows = ReadMeasuredStep(PosixEnv(), path);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), s.events.size());
  double end = 0, planned_end = 0;
  for (const TraceRow& r : *rows) end = std::max(end, r.begin.v + r.duration.v);
  for (const TraceRow& r : s.events) planned_end = std::max(planned_end, r.begin.v + r.duration.v);
  EXPECT_NEAR(end, planned_end, 1e-8);
}

TEST(MeasuredStep, HasNoEvaluations) {
  const auto row = [](const char* program, Phase phase, double begin) {
    return TraceRow{.op = Op::kLinear, .phase = phase, .begin = {begin}, .duration = {1}, .program = program};
  };
  std::string text;
  OpenTrace(&text);
  for (const TraceRow& r :
       {row("train", Phase::kForward, 0), row("train", Phase::kUpdate, 1), row("eval", Phase::kForward, 2),
        row("train", Phase::kForward, 3), row("train", Phase::kUpdate, 4)}) {
    AppendTraceRow(r, &text);
  }
  CloseTrace(0, &text);
  const ScratchFolder folder;
  const std::string path = folder / "trace.json";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, text).ok());
  const auto rows = ReadMeasuredStep(PosixEnv(), path);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_NEAR(rows->at(1).begin.v, 1, 1e-6);
}

TEST(MeasuredStep, RefusesFilesThatAreNoTraces) {
  const ScratchFolder folder;
  const std::string path = folder / "trace.json";
  for (const char* text :
       {"[]", "{}", "{\"traceEvents\": 3}", "{\"traceEvents\": []}", "{\"traceEvents\": [{\"name\": \"x\"}]}",
        R"({"traceEvents": [{"name": "linear", "cat": "forward", "ts": -5, "dur": 1}]})"}) {
    ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, text).ok());
    EXPECT_FALSE(ReadMeasuredStep(PosixEnv(), path).ok()) << text;
  }
}

}  // namespace
}  // namespace temper::simulation_test
