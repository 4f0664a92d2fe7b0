// A base kept as int8 rows computes what a base in bf16 with the same values computes, bit for bit: losses, gradient
// norms and adapters after several steps, in every placement, on every mesh, and in decoding. So scales are those of
// whole rows wherever columns are cut, and everything that is true of a bf16 base is true of it.
#include <gtest/gtest.h>

#include "infer/decode_session.h"
#include "thread_ranks.h"

namespace temper::tiny {
namespace {

struct Outcome {
  std::vector<float> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<std::byte>> adapters;
  Bytes weights;
};

Outcome Train(const RunSpec& spec) {
  TinyRun run(spec);
  Outcome o;
  const auto add_losses = [&] { o.losses.insert(o.losses.end(), run.losses().begin(), run.losses().end()); };
  for (uint64_t step = 0; step < 3; ++step) {
    Batch batch = run.MakeBatch(step);
    run.Step(batch);
    add_losses();
    o.norms.push_back(run.grad_norm());
  }
  Batch held_out = run.MakeBatch(100);
  run.Evaluate(held_out);
  add_losses();
  for (const Buffer& b : run.train().buffers) {
    if (b.role == Role::kAdapter) o.adapters[b.name] = run.BytesOf(b);
    if (b.role == Role::kWeight) o.weights += b.type.bytes();
  }
  return o;
}

void ExpectSame(const Outcome& int8, const Outcome& values) {
  EXPECT_EQ(int8.losses, values.losses);
  EXPECT_EQ(int8.norms, values.norms);
  EXPECT_EQ(int8.adapters, values.adapters);
  EXPECT_LT(int8.weights, values.weights);
}

RunSpec Of(const std::string& config, Base base, Method method = Method::kLora) {
  return {.config = config, .method = method, .dtype = DType::kBF16, .base = base, .dropout = 0.1, .micro_batches = 2};
}

std::vector<std::string> Families() {
  return {LlamaConfigText(true), LlamaConfigText(false), Phi3ConfigText(),    Qwen3ConfigText(),
          Gemma2ConfigText(),    Cohere2ConfigText(),    GptNeoXConfigText(), OptConfigText(true)};
}

TEST(BaseFormat, Int8ComputesWhatItsValuesDo) {
  for (const std::string& config : Families()) {
    SCOPED_TRACE(config.substr(0, 60));
    ExpectSame(Train(Of(config, Base::kInt8)), Train(Of(config, Base::kInt8Values)));
  }
  const std::string llama = LlamaConfigText(false);
  ExpectSame(Train(Of(llama, Base::kInt8, Method::kLoraWithHead)),
             Train(Of(llama, Base::kInt8Values, Method::kLoraWithHead)));
}

// What int8 changes the loss by follows from its roundings: to first order it is the gradient times their errors, and
// it never exceeds the gradient times the largest error that each weight can have, half a scale and bf16's half place.
TEST(BaseFormat, TheLossIsWithinTheErrorOfTheRounding) {
  for (const std::string& config : {LlamaConfigText(true), Qwen3ConfigText(), OptConfigText(true)}) {
    RunSpec spec{.config = config, .micro_batches = 2};
    TinyRun exact(spec);
    spec.base = Base::kInt8Values;
    TinyRun rounded(spec);
    double first_order = 0, bound = 0;
    std::map<std::string, std::vector<float>> weights;
    const auto floats = [](const TinyRun& run, const Buffer& b) {
      const std::vector<std::byte> bytes = run.BytesOf(b);
      std::vector<float> x(bytes.size() / 4);
      std::memcpy(x.data(), bytes.data(), bytes.size());
      return x;
    };
    for (const Buffer& b : exact.train().buffers) {
      if (b.role == Role::kWeight) weights[b.name] = floats(exact, b);
    }
    std::map<std::string, std::vector<float>> values;
    for (const Buffer& b : rounded.train().buffers) {
      if (b.role == Role::kWeight) values[b.name] = floats(rounded, b);
    }
    Batch batch = exact.MakeBatch(1);
    exact.Step(batch);
    const double loss = exact.loss_sum();
    rounded.Step(batch);
    for (const Buffer& b : exact.train().buffers) {
      if (b.role != Role::kWeight || weights[b.name] == values[b.name]) continue;
      const int gradient = exact.train().FindBuffer(GradientName(b.name));
      ASSERT_GE(gradient, 0) << b.name;
      const std::vector<float> g = floats(exact, exact.train().buffers[static_cast<size_t>(gradient)]);
      const auto columns = static_cast<size_t>(b.type.shape.columns());
      for (size_t i = 0; i < g.size(); ++i) {
        const auto row = std::span(weights[b.name]).subspan(i / columns * columns, columns);
        const double error = values[b.name][i] - weights[b.name][i];
        const double largest = 0.5001 * Int8Scale(row) + 0x1p-8 * std::fabs(weights[b.name][i]);
        EXPECT_LE(std::fabs(error), largest) << b.name;
        first_order += g[i] * error;
        bound += std::fabs(g[i]) * largest;
      }
    }
    const double change = rounded.loss_sum() - loss;
    EXPECT_LE(std::fabs(change), bound);
    EXPECT_NE(change, 0);
    EXPECT_LT(bound, 0.2 * loss) << "a bound that says something";
    // Second order: errors of a percent of the weights' size, squared, over all weights.
    EXPECT_NEAR(change, first_order, 0.05 * bound);
  }
}

// So does a machine without bf16 instructions, or with any others.
TEST(BaseFormat, OnEveryInstructionSet) {
  for (const Isa isa : RunnableIsas()) {
    SCOPED_TRACE(ToString(isa));
    RunSpec int8 = Of(LlamaConfigText(true), Base::kInt8), values = Of(LlamaConfigText(true), Base::kInt8Values);
    int8.isa = values.isa = isa;
    ExpectSame(Train(int8), Train(values));
  }
}

TEST(BaseFormat, InEveryPlacementAndRecomputed) {
  const Outcome values = Train(Of(LlamaConfigText(false), Base::kInt8Values));
  const MemorySpec placements[] = {{.policy = TierPolicy::kHost},
                                   {.weights = Tier::kHost},
                                   {.weights = Tier::kDisk},
                                   {.weights = Tier::kDisk, .activations = Tier::kHost}};
  for (const MemorySpec& memory : placements) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
      RunSpec spec = Of(LlamaConfigText(false), Base::kInt8);
      spec.memory = memory;
      spec.recompute = recompute;
      spec.through_text = true;
      ExpectSame(Train(spec), values);
    }
  }
}

MeshSpec MeshOf(std::initializer_list<std::pair<Axis, int>> sizes, ResidualSplit residual = ResidualSplit::kTokens) {
  MeshSpec spec{.residual = residual};
  for (const auto& [axis, size] : sizes) spec.mesh.set_size(axis, size);
  return spec;
}

TEST(BaseFormat, OnEveryMesh) {
  MeshSpec mlp_weights = MeshOf({{Axis::kTp, 2}});
  mlp_weights.decisions.mlp = MlpMove::kWeights;  // whose columns would be gathered: activations are, instead
  const MeshSpec meshes[] = {MeshOf({{Axis::kFsdp, 2}}),
                             MeshOf({{Axis::kFsdp, 3}}),
                             MeshOf({{Axis::kTp, 2}}),
                             MeshOf({{Axis::kTp, 2}}, ResidualSplit::kWhole),
                             MeshOf({{Axis::kTp, 2}, {Axis::kCopy, 2}}),
                             MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}),
                             MeshOf({{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden),
                             MeshOf({{Axis::kDepth, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden),
                             MeshOf({{Axis::kFsdp, 2}, {Axis::kCp, 2}}),
                             MeshOf({{Axis::kPp, 2}, {Axis::kFsdp, 2}}),
                             mlp_weights};
  for (const MeshSpec& mesh : meshes) {
    for (const std::string& config : {LlamaConfigText(true), Phi3ConfigText()}) {
      SCOPED_TRACE(mesh.mesh.ToString() + " " + config.substr(0, 40));
      RunSpec int8 = Of(config, Base::kInt8), values = Of(config, Base::kInt8Values);
      int8.mesh = values.mesh = mesh;
      int8.rows_per_micro_batch = values.rows_per_micro_batch = mesh.mesh.size(DataAxes(mesh.mesh));
      // Which of activations and weights move is a decision that changes the order of sums.
      values.mesh.decisions.mlp = MlpMove::kActivations;
      const std::vector<Outcome> a = OnThreadRanks<Outcome>(int8, Train), b = OnThreadRanks<Outcome>(values, Train);
      for (size_t rank = 0; rank < a.size(); ++rank) ExpectSame(a[rank], b[rank]);
    }
  }
}

// A user's rule may cut columns along an axis over which weights are gathered.
TEST(BaseFormat, ColumnsThatWouldHaveToBeGatheredAreRefused) {
  const auto model = MakeModel(LlamaConfigText(true));
  Graph forward = model->Forward({.dtype = DType::kBF16, .tokens = 64, .row = 32, .training = false});
  KeepBaseAs(ElementFormat::Int8Rows(), model->modules(), &forward);
  MeshSpec mesh = MeshOf({{Axis::kFsdp, 2}});
  mesh.rules = {{"q_proj", "-,fsdp"}};
  const auto programs = CompileTraining(forward, forward, {.micro_batches = 1, .mesh = mesh}, nullptr, nullptr);
  ASSERT_FALSE(programs.ok());
  EXPECT_NE(
      programs.status().message().find("the columns of model.layers.0.self_attn.q_proj.weight are split over fsdp"),
      std::string::npos)
      << programs.status().message();
}

TEST(BaseFormat, DecodingReadsIt) {
  for (const std::string& config : {LlamaConfigText(true), Phi3ConfigText(), OptConfigText(true)}) {
    std::vector<float> logits[2];
    for (const Base base : {Base::kInt8, Base::kInt8Values}) {
      TinyRun run(Of(config, base));
      const DecodeSpec spec{.dtype = DType::kBF16,
                            .context = 64,
                            .base = base == Base::kInt8 ? std::optional(ElementFormat::Int8Rows()) : std::nullopt,
                            .threads = 2};
      const auto kernels = MakeCpuKernels({.threads = 2});
      const auto session = Must(DecodeSession::Create(*MakeModel(config), spec, *kernels));
      for (const Buffer& b : run.train().buffers) {
        if (b.role != Role::kWeight) continue;
        const DevicePart target = session->Buffer(b.name);
        ASSERT_TRUE(target.exists() && target.part.view.type == b.type) << b.name;
        Must(target.stream->CopyToDevice(run.BytesOf(b), target.part.view.data));
      }
      for (const std::vector<int32_t>& tokens : {std::vector<int32_t>(21, 7), {3}, {11}}) {
        const auto fed = Must(session->Feed(tokens));
        auto& all = logits[base == Base::kInt8];
        all.insert(all.end(), fed.begin(), fed.end());
      }
    }
    EXPECT_EQ(logits[0], logits[1]);
  }
}

}  // namespace
}  // namespace temper::tiny
