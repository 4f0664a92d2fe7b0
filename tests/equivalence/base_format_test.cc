// A quantised base computes what a base in bf16 with the same values computes, bit for bit: losses, gradient norms and
// adapters after several steps, in every placement, on every mesh, and in decoding. So scales are those of the whole
// weight wherever it is cut, and everything that is true of a bf16 base is true of it.
#include <gtest/gtest.h>

#include "infer/decode_engine.h"
#include "thread_ranks.h"
#include "training_steps.h"

namespace temper::tiny::base_format_test {
namespace {

Bytes WeightBytes(const Outcome& o) {
  Bytes bytes{};
  for (const Buffer& b : o.buffers) {
    if (b.role == Role::kWeight) bytes += b.type.bytes();
  }
  return bytes;
}

void ExpectSame(const Outcome& kept, const Outcome& values) {
  ExpectSameResults(kept, values);
  EXPECT_LT(WeightBytes(kept), WeightBytes(values));
}

const Base kInt8{ElementFormat::Int8Rows()}, kNf4{ElementFormat::Nf4()};
// Token embedding and head in int8: alone, and beside linear modules in nf4.
const Base kEmbedding{.embedding = true}, kNf4AndEmbedding{.format = ElementFormat::Nf4(), .embedding = true};
const Base kBases[] = {kInt8, kNf4, kEmbedding, kNf4AndEmbedding};

// Of mixtures: experts in files' MXFP4, whatever linear modules are in.
const Base kMxfp4{.experts = ElementFormat::Mxfp4()},
    kNf4AndMxfp4{.format = ElementFormat::Nf4(), .experts = ElementFormat::Mxfp4()};
const Base kMixtureBases[] = {kInt8, kNf4, kMxfp4, kNf4AndMxfp4};

Base ValuesOf(Base base) {
  base.values = true;
  return base;
}

std::string ToString(const Base& base) {
  return std::string(base.format ? ToString(*base.format) : "bf16") + (base.embedding ? ", embedding int8" : "") +
         (base.experts ? ", experts " + std::string(ToString(*base.experts)) : "");
}

RunSpec Of(const std::string& config, const Base& base, Method method = Method::kLora) {
  return {.config = config, .method = method, .dtype = DType::kBF16, .base = base, .dropout = 0.1, .micro_batches = 2};
}

std::vector<std::string> Families() {
  return {LlamaConfigText(true), LlamaConfigText(false), Phi3ConfigText(),          Qwen3ConfigText(),
          Gemma2ConfigText(),    Cohere2ConfigText(),    GptNeoXConfigText(),       OptConfigText(true),
          GraniteConfigText(),   Qwen35ConfigText(),     GraniteHybridConfigText(), Gemma4ConfigText(),
          YoutuConfigText()};
}

// Adapters of experts, which all-linear means but for gpt-oss, have no dropout.
RunSpec OfMixture(const std::string& config, const Base& base) {
  RunSpec spec = Of(config, base);
  spec.dropout = 0;
  return spec;
}

// Some of their experts' rows end within a block of nf4 or MXFP4.
std::vector<std::string> Mixtures() {
  return {Qwen3MoeConfigText(), GptOssConfigText(), Qwen35MoeConfigText(), Glm4MoeConfigText(), DeepseekV3ConfigText()};
}

// nf4's blocks of 64 cross the rows of those with other heads than 64 / 4, or with 160 columns.
TEST(BaseFormat, ComputesWhatItsValuesDo) {
  for (const Base& base : kBases) {
    for (const std::string& config : Families()) {
      SCOPED_TRACE(ToString(base) + " " + config.substr(0, 60));
      ExpectSame(Train(Of(config, base)), Train(Of(config, ValuesOf(base))));
    }
    const std::string llama = LlamaConfigText(false);
    ExpectSame(Train(Of(llama, base, Method::kLoraWithHead)), Train(Of(llama, ValuesOf(base), Method::kLoraWithHead)));
    const auto beside = [&](const tiny::Base& kept) {
      tiny::RunSpec spec = Of(llama, kept, Method::kLora);
      spec.saved = {"embed_tokens", "v_proj"};
      return spec;
    };
    ExpectSame(Train(beside(base)), Train(beside(ValuesOf(base))));
  }
}

// Also where an adapter is on experts: its stacks stay as they are computed.
TEST(BaseFormat, ExpertsComputeWhatTheirValuesDo) {
  for (const Base& base : kMixtureBases) {
    for (const std::string& config : Mixtures()) {
      SCOPED_TRACE(ToString(base) + " " + config.substr(0, 60));
      ExpectSame(Train(OfMixture(config, base)), Train(OfMixture(config, ValuesOf(base))));
    }
    const auto adapted = [&](const tiny::Base& kept) {
      tiny::RunSpec spec = OfMixture(GptOssConfigText(), kept);
      spec.target_parameters = {"experts.gate_up_proj", "experts.down_proj"};
      return spec;
    };
    ExpectSame(Train(adapted(base)), Train(adapted(ValuesOf(base))));
  }
  const Outcome values = Train(OfMixture(GptOssConfigText(), ValuesOf(kNf4AndMxfp4)));
  for (const MemorySpec& memory : {MemorySpec{.policy = TierPolicy::kHost}, MemorySpec{.weights = Tier::kDisk}}) {
    RunSpec spec = OfMixture(GptOssConfigText(), kNf4AndMxfp4);
    spec.memory = memory;
    spec.recompute = Recompute::kBlock;
    spec.through_text = true;
    ExpectSame(Train(spec), values);
  }
}

// The most by which each value of a weight may differ from it in the format. int8: half a scale. nf4: half the widest
// gap of its numbers times the block's absmax, which is itself off by at most 1 % of its group's scale, and that is no
// more than the largest absmax (nf4_rows_test.cc). And bf16's half place.
std::vector<float> LargestErrors(ElementFormat format, std::span<const float> weight, size_t columns) {
  const auto largest = [](std::span<const float> x) {
    float m = 0;
    for (const float v : x) m = std::max(m, std::fabs(v));
    return m;
  };
  const bool int8 = format == ElementFormat::Int8Rows();
  const size_t run = int8 ? columns : kNf4Block;  // of values with the same scale
  const float of_scales = 0.01f * largest(weight);
  std::vector<float> errors;
  for (size_t begin = 0; begin < weight.size(); begin += run) {
    const auto values = weight.subspan(begin, std::min(run, weight.size() - begin));
    const float rounding = int8 ? 0.5001f * Int8Scale(values) : 0.1520f * largest(values) + of_scales;
    for (const float v : values) errors.push_back(rounding + 0x1p-8f * std::fabs(v));
  }
  return errors;
}

// What a format changes the loss by follows from its roundings, none larger than derived: it is the mean of the
// gradients before and after, times their errors. What is left is of third order.
TEST(BaseFormat, TheLossIsWithinTheErrorOfTheRounding) {
  for (const Base& base : kBases) {
    for (const std::string& config : {LlamaConfigText(true), Qwen3ConfigText(), OptConfigText(true)}) {
      RunSpec spec{.config = config, .micro_batches = 2};
      TinyRun exact(spec);
      spec.base = ValuesOf(base);
      TinyRun rounded(spec);
      const auto floats = [](const TinyRun& run, const Buffer& b) {
        const std::vector<std::byte> bytes = run.BytesOf(b);
        std::vector<float> x(bytes.size() / 4);
        std::memcpy(x.data(), bytes.data(), bytes.size());
        return x;
      };
      std::map<std::string, std::vector<float>> weights, values;
      for (const Buffer& b : exact.train().buffers) {
        if (b.role == Role::kWeight) weights[b.name] = floats(exact, b);
      }
      for (const Buffer& b : rounded.train().buffers) {
        if (b.role == Role::kWeight) values[b.name] = floats(rounded, b);
      }
      Batch batch = exact.MakeBatch(1);
      exact.Step(batch);
      rounded.Step(batch);
      double predicted = 0, bound = 0;
      for (const Buffer& b : exact.train().buffers) {
        if (b.role != Role::kWeight || weights[b.name] == values[b.name]) continue;
        const int gradient = exact.train().FindBuffer(GradientName(b.name));
        ASSERT_GE(gradient, 0) << b.name;
        const Buffer& of = exact.train().buffers[static_cast<size_t>(gradient)];
        const std::vector<float> before = floats(exact, of), after = floats(rounded, of);
        const auto columns = static_cast<size_t>(b.type.shape.columns());
        const std::vector<float> largest_errors = LargestErrors(rounded.formats().at(b.name), weights[b.name], columns);
        for (size_t i = 0; i < before.size(); ++i) {
          const float error = values[b.name][i] - weights[b.name][i];
          const float largest = largest_errors[i];
          ASSERT_LE(std::fabs(error), largest) << b.name;
          predicted += 0.5 * (before[i] + after[i]) * error;
          bound += std::max(std::fabs(before[i]), std::fabs(after[i])) * largest;
        }
      }
      const double change = rounded.loss_sum() - exact.loss_sum();
      SCOPED_TRACE(ToString(base) + " " + config.substr(0, 60) + ": " + std::to_string(change) + " of " +
                   std::to_string(exact.loss_sum()) + ", bound " + std::to_string(bound));
      EXPECT_LE(std::fabs(change), bound);
      EXPECT_NE(change, 0);
      EXPECT_NEAR(change, predicted, 0.01 * bound);
    }
  }
}

// So does a machine without bf16 instructions, or with any others.
TEST(BaseFormat, OnEveryInstructionSet) {
  for (const Base& base : kBases) {
    for (const Isa isa : RunnableIsas()) {
      SCOPED_TRACE(ToString(isa));
      RunSpec kept = Of(LlamaConfigText(true), base), values = Of(LlamaConfigText(true), ValuesOf(base));
      kept.isa = values.isa = isa;
      ExpectSame(Train(kept), Train(values));
    }
  }
}

// Where a program is made for kernels that dequantise first, those that do as they pack ignore its scratch.
TEST(BaseFormat, OnAProcessorInAProgramForADevice) {
  for (const Base& base : kBases) {
    RunSpec spec = Of(LlamaConfigText(true), base);
    spec.base.dequantised_first = true;
    ExpectSame(Train(spec), Train(Of(LlamaConfigText(true), ValuesOf(base))));
  }
}

TEST(BaseFormat, InEveryPlacementAndRecomputed) {
  const MemorySpec placements[] = {{.policy = TierPolicy::kHost},
                                   {.weights = Tier::kHost},
                                   {.weights = Tier::kDisk},
                                   {.weights = Tier::kDisk, .activations = Tier::kHost}};
  for (const Base& base : kBases) {
    const Outcome values = Train(Of(LlamaConfigText(false), ValuesOf(base)));
    for (const MemorySpec& memory : placements) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
        RunSpec spec = Of(LlamaConfigText(false), base);
        spec.memory = memory;
        spec.recompute = recompute;
        spec.through_text = true;
        ExpectSame(Train(spec), values);
      }
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
      for (const Base& base : kBases) {
        SCOPED_TRACE(mesh.mesh.ToString() + " " + ToString(base) + " " + config.substr(0, 40));
        RunSpec kept = Of(config, base), values = Of(config, ValuesOf(base));
        kept.mesh = values.mesh = mesh;
        kept.rows_per_micro_batch = values.rows_per_micro_batch = mesh.mesh.size(DataAxes(mesh.mesh));
        // Which of activations and weights move is a decision that changes the order of sums.
        if (base.format) values.mesh.decisions.mlp = MlpMove::kActivations;
        const std::vector<Outcome> a = OnThreadRanks<Outcome>(kept, Train), b = OnThreadRanks<Outcome>(values, Train);
        for (size_t rank = 0; rank < a.size(); ++rank) ExpectSame(a[rank], b[rank]);
      }
    }
  }
}

// tp cuts the columns of the down projections of experts, some of them within a block.
TEST(BaseFormat, ExpertsOnEveryMesh) {
  const MeshSpec meshes[] = {MeshOf({{Axis::kFsdp, 2}}),
                             MeshOf({{Axis::kFsdp, 4}}),
                             MeshOf({{Axis::kTp, 2}}),
                             MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}),
                             MeshOf({{Axis::kPp, 2}, {Axis::kFsdp, 2}}),
                             MeshOf({{Axis::kFsdp, 2}, {Axis::kEp, 2}})};
  for (const MeshSpec& mesh : meshes) {
    for (const std::string& config : {Qwen3MoeConfigText(), GptOssConfigText()}) {
      if (mesh.mesh.size(Axis::kEp) > 1 && config == GptOssConfigText()) continue;  // its biases are not dealt
      for (const Base& base : {kNf4, kNf4AndMxfp4}) {
        SCOPED_TRACE(mesh.mesh.ToString() + " " + ToString(base) + " " + config.substr(0, 40));
        RunSpec kept = OfMixture(config, base), values = OfMixture(config, ValuesOf(base));
        kept.mesh = values.mesh = mesh;
        kept.rows_per_micro_batch = values.rows_per_micro_batch = mesh.mesh.size(DataAxes(mesh.mesh));
        // Decisions by bytes that change the order of sums.
        values.mesh.decisions.mlp = MlpMove::kActivations;
        kept.mesh.decisions.grad_sync = values.mesh.decisions.grad_sync = GradSync::kStep;
        const std::vector<Outcome> a = OnThreadRanks<Outcome>(kept, Train), b = OnThreadRanks<Outcome>(values, Train);
        for (size_t rank = 0; rank < a.size(); ++rank) ExpectSame(a[rank], b[rank]);
      }
    }
  }
}

// A user's rule may cut columns along an axis over which weights are gathered.
TEST(BaseFormat, ColumnsThatWouldHaveToBeGatheredAreRefused) {
  const auto model = MakeModel(LlamaConfigText(true));
  Graph forward = model->Forward({.dtype = DType::kBF16, .tokens = 64, .row = 32, .training = false});
  KeepBaseAs({.modules = ElementFormat::Int8Rows()}, model->modules(), &forward);
  MeshSpec mesh = MeshOf({{Axis::kFsdp, 2}});
  mesh.rules = {{"q_proj", "-,fsdp"}};
  const auto programs = CompileGraphs(TrainAndEval(forward, forward), {.micro_batches = 1, .mesh = mesh});
  ASSERT_FALSE(programs.ok());
  EXPECT_NE(
      programs.status().message().find("the columns of model.layers.0.self_attn.q_proj.weight are split over fsdp"),
      std::string::npos)
      << programs.status().message();
}

TEST(BaseFormat, DecodingReadsIt) {
  for (const Base& format : kBases) {
    for (const std::string& config : {LlamaConfigText(true), Phi3ConfigText(), OptConfigText(true)}) {
      std::vector<float> logits[2];
      for (const Base& base : {format, ValuesOf(format)}) {
        TinyRun run(Of(config, base));
        DecodeSpec spec{.dtype = DType::kBF16, .context = 64};
        if (base.is_kept()) spec.base.modules = base.format;
        if (base.is_kept() && base.embedding) spec.base.embedding = ElementFormat::Int8Rows();
        const auto kernels = MakeCpuKernels({});
        const auto engine = Must(DecodeEngine::Create(*MakeModel(config), spec, *kernels));
        DecodeSequence* const session = engine->Open();
        for (const Buffer& b : run.train().buffers) {
          if (b.role != Role::kWeight) continue;
          const DevicePart target = engine->Buffer(b.name);
          ASSERT_TRUE(target.exists() && target.part.view.type == b.type) << b.name;
          Must(target.stream->CopyToDevice(run.BytesOf(b), target.part.view.data));
        }
        for (const std::vector<int32_t>& tokens : {std::vector<int32_t>(21, 7), {3}, {11}}) {
          const auto fed = Must(session->Feed(tokens));
          auto& all = logits[base.values];
          all.insert(all.end(), fed.begin(), fed.end());
        }
      }
      EXPECT_EQ(logits[0], logits[1]);
    }
  }
}

}  // namespace
}  // namespace temper::tiny::base_format_test
