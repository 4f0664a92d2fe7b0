// These must not change a result: recomputation, the text form of the Program, the cut into micro-batches, and (within
// rounding) the kernels and the number of threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "../tiny_run.h"

namespace temper::equivalence_test {
namespace {

using tiny::Batch;
using tiny::Method;
using tiny::RunSpec;
using tiny::TinyRun;

struct Variant {
  std::string name;
  RunSpec spec;
  friend void PrintTo(const Variant& v, std::ostream* out) { *out << v.name; }
};

// Every family, method and dtype; each changes the graph differently.
std::vector<Variant> Variants() {
  std::vector<Variant> variants;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::string suffix = "_" + std::string(ToString(dtype));
    const auto add = [&](const std::string& name, RunSpec spec) {
      spec.dtype = dtype;
      variants.push_back({name + suffix, spec});
    };
    add("llama_tied_full", {.config = tiny::LlamaConfigText(true)});
    add("llama_untied_full", {.config = tiny::LlamaConfigText(false)});
    add("llama_lora", {.config = tiny::LlamaConfigText(true), .method = Method::kLora});
    add("llama_lora_dropout", {.config = tiny::LlamaConfigText(false), .method = Method::kLora, .dropout = 0.25});
    add("llama_lora_head_dropout",
        {.config = tiny::LlamaConfigText(true), .method = Method::kLoraWithHead, .dropout = 0.5});
    add("qwen3_dora", {.config = tiny::Qwen3ConfigText(), .method = Method::kDora});
    add("phi3_dora_dropout", {.config = tiny::Phi3ConfigText(), .method = Method::kDora, .dropout = 0.25});
    add("qwen3_full", {.config = tiny::Qwen3ConfigText()});
    add("qwen3_lora", {.config = tiny::Qwen3ConfigText(), .method = Method::kLora});
    add("gemma2_full", {.config = tiny::Gemma2ConfigText()});
    add("gemma4_full", {.config = tiny::Gemma4ConfigText()});
    add("gemma4_lora_dropout", {.config = tiny::Gemma4ConfigText(), .method = Method::kLora, .dropout = 0.1});
    add("qwen3_5_full", {.config = tiny::Qwen35ConfigText()});
    add("granite_hybrid_full", {.config = tiny::GraniteHybridConfigText()});
    add("falcon_h1_lora", {.config = tiny::FalconH1ConfigText(), .method = Method::kLora});
    add("qwen3_moe_full", {.config = tiny::Qwen3MoeConfigText()});
    add("qwen3_moe_lora", {.config = tiny::Qwen3MoeConfigText(), .method = Method::kLora});
    add("qwen3_next_full", {.config = tiny::Qwen3NextConfigText()});
    add("deepseek_v3_full", {.config = tiny::DeepseekV3ConfigText()});
    add("deepseek_v3_lora", {.config = tiny::DeepseekV3ConfigText(), .method = Method::kLora});
    add("youtu_lora_dropout", {.config = tiny::YoutuConfigText(), .method = Method::kLora, .dropout = 0.1});
    add("gpt_oss_full", {.config = tiny::GptOssConfigText()});
    add("gpt_oss_lora", {.config = tiny::GptOssConfigText(), .method = Method::kLora});
    add("granite_lora", {.config = tiny::GraniteConfigText(), .method = Method::kLora});
    add("phi_full", {.config = tiny::PhiConfigText()});
    add("phi_lora_head", {.config = tiny::PhiConfigText(), .method = Method::kLoraWithHead});
    add("opt_full", {.config = tiny::OptConfigText(true)});
    add("opt_post_norm_full", {.config = tiny::OptConfigText(false)});
    add("opt_lora_dropout", {.config = tiny::OptConfigText(true), .method = Method::kLora, .dropout = 0.1});
    add("opt_own_dropout_full", {.config = tiny::OptConfigText(true, 0.1), .dropout = 0.1});
    add("opt_own_dropout_lora", {.config = tiny::OptConfigText(false, 0.2), .method = Method::kLora, .dropout = 0.1});
    add("gemma2_noise_full", {.config = tiny::Gemma2ConfigText(), .dropout = 0.1, .noise = 5, .smoothing = 0.2});
    add("opt_lora_head", {.config = tiny::OptConfigText(false), .method = Method::kLoraWithHead});
    // One type each: all their ops are in the variants above in both.
    if (dtype == DType::kBF16) {
      add("gemma3_lora", {.config = tiny::Gemma3ConfigText(), .method = Method::kLora});
      add("starcoder2_full", {.config = tiny::Starcoder2ConfigText()});
    } else {
      add("gpt2_own_dropout_full", {.config = tiny::Gpt2ConfigText(), .dropout = 0.1});
    }
  }
  return variants;
}

// Losses of two steps, of which the second is of weights and states that the first has changed, and all state after
// them.
struct Outcome {
  std::vector<std::vector<float>> losses;
  std::map<std::string, std::vector<std::byte>> state;
};
Outcome TwoSteps(const RunSpec& spec) {
  TinyRun run(spec);
  Outcome outcome;
  for (uint64_t t = 0; t < 2; ++t) {
    Batch batch = run.MakeBatch(t);
    run.Step(batch);
    outcome.losses.push_back(run.losses());
  }
  outcome.state = run.State();
  return outcome;
}

// Those of a variant, computed once.
const Outcome& OutcomeOf(const Variant& variant) {
  static std::map<std::string, Outcome> known;
  const auto [it, fresh] = known.try_emplace(variant.name);
  if (fresh) it->second = TwoSteps(variant.spec);
  return it->second;
}

void ExpectSameBits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.state.size(), b.state.size());
  for (const auto& [name, bytes] : a.state) EXPECT_TRUE(b.state.at(name) == bytes) << name;
}

class Equivalence : public testing::TestWithParam<Variant> {};

TEST_P(Equivalence, RecomputingChangesNoBit) {
  RunSpec spec = GetParam().spec;
  const Outcome& keep = OutcomeOf(GetParam());
  for (const auto& [mode, blocks] : {std::pair{Recompute::kSelective, kAllBlocks}, std::pair{Recompute::kBlock, 1},
                                     std::pair{Recompute::kBlock, kAllBlocks}}) {
    SCOPED_TRACE(fmt::format("{}, {} blocks", ToString(mode), blocks));
    spec.recompute = mode;
    spec.recompute_blocks = blocks;
    ExpectSameBits(keep, TwoSteps(spec));
  }
  // The steps did change the weights (AFrozenWeightNeverMoves): equality of constant weights would prove nothing.
  EXPECT_NE(keep.losses[0], keep.losses[1]);
}

TEST_P(Equivalence, AProgramReadBackFromItsTextGivesTheSameBits) {
  RunSpec spec = GetParam().spec;
  spec.through_text = true;
  ExpectSameBits(OutcomeOf(GetParam()), TwoSteps(spec));
}

TEST_P(Equivalence, TheSameThreadsGiveTheSameBits) {
  RunSpec spec = GetParam().spec;
  ASSERT_EQ(spec.threads, 1);
  ExpectSameBits(OutcomeOf(GetParam()), TwoSteps(spec));
  spec.threads = 3;
  ExpectSameBits(TwoSteps(spec), TwoSteps(spec));
}

// Biases of keys that are not rotated (OPT's, GPT-2's) have a gradient of zero in theory; the rest is rounding.
bool HasNoGradient(const std::string& name) {
  return name.find("k_proj.bias") != std::string::npos || name.find("c_attn.bias/k") != std::string::npos;
}

// Relative distance of gradients, states or weights as vectors.
double Distance(const TinyRun& a, const TinyRun& b, const std::string& name) {
  const View x = a.Find(name), y = b.Find(name);
  double difference = 0, norm = 0;
  DispatchFloat(x.type.dtype, [&]<class T>() {
    for (size_t i = 0; i < x.as<T>().size(); ++i) {
      const double u = ToFloat(x.as<T>()[i]), v = ToFloat(y.as<T>()[i]);
      difference += (u - v) * (u - v);
      norm += u * u;
    }
  });
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// One step of eight rows, cut three ways. A token's loss is the same sum of the same numbers for any number of other
// rows: fast kernels may group rows differently only if each row keeps its order. Gradients are sums over all tokens,
// cut at other places: n f32 additions in another order differ by at most n u of the sum of the terms' magnitudes, and
// by about sqrt(n) u of the norm.
TEST_P(Equivalence, LossAndGradientsDoNotDependOnTheCutIntoMicroBatches) {
  RunSpec spec = GetParam().spec;
  spec.weight_decay = 0;
  spec.threads = 2;  // a kernel's items are other ones in each cut
  const auto run_cut = [&](int64_t rows, int micro_batches) {
    RunSpec cut = spec;
    cut.rows_per_micro_batch = rows;
    cut.micro_batches = micro_batches;
    auto run = std::make_unique<TinyRun>(cut);
    Batch batch = run->MakeBatch(7);
    run->Step(batch);
    return run;
  };
  const auto whole = run_cut(8, 1);
  // Activations in bf16 have the same bits in every cut if each row of a product has; the tolerance allows a bf16
  // rounding in the other direction.
  const double u = spec.dtype == DType::kF32 ? 0x1p-24 : 0x1p-9;
  const double tokens = 8.0 * static_cast<double>(spec.row);
  for (const auto& [rows, micro_batches] : {std::pair<int64_t, int>{4, 2}, {2, 4}, {1, 8}}) {
    SCOPED_TRACE(fmt::format("{} micro-batches of {} rows", micro_batches, rows));
    const auto cut = run_cut(rows, micro_batches);
    ASSERT_EQ(cut->losses().size(), whole->losses().size());
    for (size_t i = 0; i < cut->losses().size(); ++i) {
      ASSERT_NEAR(cut->losses()[i], whole->losses()[i], 64 * u * (1 + std::abs(whole->losses()[i]))) << i;
    }
    EXPECT_NEAR(cut->loss_sum(), whole->loss_sum(), 16 * u * std::abs(whole->loss_sum()));
    EXPECT_NEAR(cut->grad_norm(), whole->grad_norm(), 64 * u * whole->grad_norm());
    for (const Buffer& b : whole->train().buffers) {
      if (b.role != Role::kGradient) continue;
      if (HasNoGradient(b.name)) continue;
      EXPECT_LE(Distance(*whole, *cut, b.name), 8 * std::sqrt(tokens) * u) << b.name;
    }
  }
}

class EquivalenceWithDropout : public testing::TestWithParam<Variant> {};

// The cuts above include these variants; that proves something only if their draws have an effect.
TEST_P(EquivalenceWithDropout, DrawsHaveAnEffectAndAreReproducible) {
  RunSpec spec = GetParam().spec;
  TinyRun with(spec), again(spec);
  spec.dropout = spec.noise = 0;
  TinyRun without(spec);
  Batch a = with.MakeBatch(7), b = without.MakeBatch(7), c = again.MakeBatch(7);
  with.Step(a);
  without.Step(b);
  again.Step(c);
  EXPECT_NE(with.losses(), without.losses());
  EXPECT_EQ(with.losses(), again.losses());
  const std::vector<float> first = with.losses();
  with.Step(a, 0);
  const std::vector<float> second = with.losses();
  EXPECT_NE(first, second) << "each step draws other numbers";
}

TEST_P(Equivalence, ScalarAndFastKernelsAgree) {
  if (DetectIsa() == Isa::kScalar) GTEST_SKIP() << "this machine has only the scalar kernels";
  RunSpec spec = GetParam().spec;
  spec.row = 24;  // longer than the windows
  spec.micro_batches = 1;
  TinyRun fast(spec);
  spec.isa = Isa::kScalar;
  TinyRun scalar(spec);
  Batch a = fast.MakeBatch(3), b = scalar.MakeBatch(3);
  fast.Step(a);
  scalar.Step(b);
  // Three blocks of half a dozen roundings each, on sums of up to 128 products: a loose 2^7 units in the last place. A
  // gated delta net's chunks add up a triangular system where the twin has a recurrence, and divide q and k by their
  // norms.
  const bool of_chunks =
      spec.config.find("Qwen3_5") != std::string::npos || spec.config.find("Qwen3Next") != std::string::npos;
  const double u = spec.dtype == DType::kF32 ? 0x1p-24 : 0x1p-9;
  EXPECT_NEAR(fast.loss_sum(), scalar.loss_sum(), 32 * u * std::abs(scalar.loss_sum()));
  EXPECT_NEAR(fast.grad_norm(), scalar.grad_norm(), 128 * u * scalar.grad_norm());
  for (const Buffer& buffer : fast.train().buffers) {
    if (buffer.role != Role::kGradient || HasNoGradient(buffer.name)) continue;
    // In bf16 a token near a tie goes to another expert, which the gradients of a router of a few tokens show in full.
    if (spec.dtype == DType::kBF16 && buffer.name.find(".router.") != std::string::npos) continue;
    EXPECT_LE(Distance(scalar, fast, buffer.name), (of_chunks ? 512 : 128) * u) << buffer.name;
  }
}

TEST_P(Equivalence, AFrozenWeightNeverMoves) {
  TinyRun run(GetParam().spec);
  const auto before = run.State();
  for (uint64_t t = 0; t < 2; ++t) {
    Batch batch = run.MakeBatch(t);
    run.Step(batch);
  }
  const auto after = run.State();
  for (const Buffer& b : run.train().buffers) {
    if (b.role != Role::kWeight && b.role != Role::kAdapter) continue;
    EXPECT_EQ(before.at(b.name) == after.at(b.name), !b.trainable) << b.name;
    // Numbers of the files that no method trains (WeightDeclaration::fixed).
    const bool is_fixed = b.name.ends_with(".layer_scalar") || b.name.ends_with(".e_score_correction_bias");
    const bool of_method = GetParam().spec.method == Method::kFull && !is_fixed;
    // What DoRA keeps of the frozen weight's rows is frozen, too.
    const bool of_adapter = b.role == Role::kAdapter && b.name.find(".lora_row_squares") == std::string::npos;
    EXPECT_EQ(b.trainable, of_method || of_adapter) << b.name;
  }
}

TEST_P(Equivalence, EvaluationUsesTheWeightsOfTrainingAndChangesNothing) {
  RunSpec spec = GetParam().spec;
  spec.micro_batches = 1;
  spec.dropout = spec.noise = 0;
  TinyRun run(spec);
  Batch batch = run.MakeBatch(1);
  run.Evaluate(batch);
  const std::vector<float> evaluated = run.losses();
  run.Step(batch, 0);
  EXPECT_EQ(run.losses(), evaluated);
  run.Evaluate(batch);
  EXPECT_EQ(run.losses(), evaluated) << "a learning rate of 0 changes no weight";
}

const auto kName = [](const testing::TestParamInfo<Variant>& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Tiny, Equivalence, testing::ValuesIn(Variants()), kName);

std::vector<Variant> VariantsWithDropout() {
  std::vector<Variant> variants = Variants();
  std::erase_if(variants, [](const Variant& v) { return v.spec.dropout == 0; });
  return variants;
}
INSTANTIATE_TEST_SUITE_P(Tiny, EquivalenceWithDropout, testing::ValuesIn(VariantsWithDropout()), kName);

}  // namespace
}  // namespace temper::equivalence_test
