// Decoding computes what training computes: logits after a prompt
// are those of the training forward, however the prompt is fed.
#include <gtest/gtest.h>

#include "decoder_under_test.h"

namespace temper::decoding_test {
namespace {

using decoding::Decoder;
using decoding::RandomTokens;
using tiny::Must;

struct Family {
  std::string name, config;
  tiny::Method method;
  bool rewinds = true;  // recurrent states do not
  friend void PrintTo(const Family& f, std::ostream* out) { *out << f.name; }
};
class Decoding : public testing::TestWithParam<Family> {
 protected:
  static std::vector<LoraModule> TargetsOf(const Family& f) {
    if (f.method == tiny::Method::kFull) return {};
    LoraConfig lora{.r = 4, .alpha = 6};
    if (f.method == tiny::Method::kLoraWithHead) lora.target_modules = ".*(q_proj|v_proj|fc1|up_proj|lm_head)";
    return Must(ResolveLora(tiny::MakeModel(f.config)->modules(), lora));
  }
};

double CrossEntropy(std::span<const float> logits, int32_t target) {
  double most = -INFINITY, sum = 0;
  for (float x : logits) most = std::max<double>(most, x);
  for (float x : logits) sum += std::exp(x - most);
  return most + std::log(sum) - logits[static_cast<size_t>(target)];
}

// The loss of token i+1 under the logits after tokens 0..i is the training forward's loss at i. In bf16 the head's
// logits round differently (training keeps bf16 chunks, decoding f32), hence its tolerance: 2^-9 of logits up to 8, and
// the errors of the products before it.
TEST_P(Decoding, LogitsAreThoseOfTheTrainingForward) {
  const Family& f = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(ToString(dtype));
    tiny::TinyRun run({.config = f.config, .method = f.method, .dtype = dtype, .row = 32, .micro_batches = 1});
    tiny::Batch batch = run.MakeBatch(1);
    batch.token = RandomTokens(33, 5);
    batch.target.assign(batch.token.begin() + 1, batch.token.end());
    batch.token.pop_back();
    for (int32_t i = 0; i < 32; ++i) {
      batch.position[static_cast<size_t>(i)] = i;
      batch.document_start[static_cast<size_t>(i)] = 0;
      batch.document_length[static_cast<size_t>(i)] = 32;
    }
    run.Evaluate(batch);
    Decoder decoder(f.config, run, TargetsOf(f), dtype, 64);
    decoder.session->KeepPrefixOf(batch.token);
    const double tolerance = dtype == DType::kF32 ? 2e-5 : 0.06;
    for (size_t i = 0; i < 32; ++i) {
      const auto logits = Must(decoder.session->Feed({&batch.token[i], 1}));
      EXPECT_NEAR(CrossEntropy(logits, batch.target[i]), run.losses()[i], tolerance) << "token " << i;
    }
  }
}

// In pieces of 64, 16 and 4 with tokens that stand for nothing: bit for bit what single tokens give.
TEST_P(Decoding, APromptFedWholeGivesTheLogitsOfItsTokensFedOneByOne) {
  const Family& f = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(ToString(dtype));
    tiny::TinyRun run({.config = f.config, .method = f.method, .dtype = dtype, .row = 32, .micro_batches = 1});
    Decoder whole(f.config, run, TargetsOf(f), dtype, 128), single(f.config, run, TargetsOf(f), dtype, 128);
    for (const int64_t n : {int64_t{1}, int64_t{3}, int64_t{5}, int64_t{21}, int64_t{90}, int64_t{128}}) {
      const std::vector<int32_t> prompt = RandomTokens(n, static_cast<uint64_t>(n));
      whole.session->Reset();
      single.session->Reset();
      const std::vector<float> a = whole.After(prompt);
      std::vector<float> b;
      for (const int32_t token : prompt) b = single.After({&token, 1});
      EXPECT_EQ(whole.session->length(), n);
      ASSERT_EQ(a, b) << "after " << n;
    }
  }
}

// A model larger than the device: every step fetches the weights that do not live there.
TEST_P(Decoding, ThePlacementOfWeightsChangesNoBit) {
  const Family& f = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    tiny::TinyRun run({.config = f.config, .method = f.method, .dtype = dtype, .row = 32, .micro_batches = 1});
    Decoder everywhere(f.config, run, TargetsOf(f), dtype, 128);
    const Bytes most = everywhere.device_bytes * 4 / 5;
    for (const MemorySpec& memory : {MemorySpec{.policy = TierPolicy::kHost},
                                     {.weights = Tier::kDisk},
                                     {.device = most},
                                     {.device = most, .host = KiB(64), .disk = true}}) {
      Decoder placed(f.config, run, TargetsOf(f), dtype, 128, memory);
      EXPECT_LE(placed.device_bytes, memory.device);
      EXPECT_GT(placed.far_bytes, Bytes{});
      everywhere.session->Reset();
      for (const int64_t n : {90, 1, 1, 7}) {  // prompts in chunks, and single tokens
        const std::vector<int32_t> tokens = RandomTokens(n, static_cast<uint64_t>(n));
        ASSERT_EQ(placed.After(tokens), everywhere.After(tokens)) << n << " tokens in " << ToString(dtype);
      }
    }
  }
}

TEST_P(Decoding, ResetForgetsEverything) {
  const Family& f = GetParam();
  tiny::TinyRun run({.config = f.config, .method = f.method, .row = 32, .micro_batches = 1});
  Decoder decoder(f.config, run, TargetsOf(f), DType::kF32, 64);
  const std::vector<int32_t> prompt = RandomTokens(20, 3), other = RandomTokens(40, 4);
  const auto first = Must(decoder.session->Feed(prompt));
  const std::vector<float> a(first.begin(), first.end());
  Must(decoder.session->Feed(other).status());
  decoder.session->Reset();
  const auto again = Must(decoder.session->Feed(prompt));
  EXPECT_EQ(a, std::vector<float>(again.begin(), again.end()));
}

TEST_P(Decoding, WhatIsKeptOfAnotherPromptNeedNotBeFedAgain) {
  const Family& f = GetParam();
  tiny::TinyRun run({.config = f.config, .method = f.method, .row = 32, .micro_batches = 1});
  Decoder kept(f.config, run, TargetsOf(f), DType::kF32, 64), fresh(f.config, run, TargetsOf(f), DType::kF32, 64);
  const auto always = [](int32_t) { return true; };
  std::vector<int32_t> sequence = RandomTokens(20, 3);
  const auto first = Must(GenerateTokens(*kept.session, sequence, 3, {}, {}, always));
  sequence.insert(sequence.end(), first.begin(), first.end());
  for (const int32_t token : RandomTokens(10, 4)) sequence.push_back(token);
  EXPECT_EQ(kept.session->length(), 22) << "the prompt and two of the three tokens";
  EXPECT_EQ(Must(GenerateTokens(*kept.session, sequence, 5, {}, {}, always)),
            Must(GenerateTokens(*fresh.session, sequence, 5, {}, {}, always)));

  if (!f.rewinds) {
    sequence.push_back(3);
    EXPECT_GT(kept.session->length(), 33);
    fresh.session->Reset();
    EXPECT_EQ(Must(GenerateTokens(*fresh.session, sequence, 9, {}, {}, always)), [&] {
      EXPECT_EQ(kept.session->KeepPrefixOf(sequence), 22) << "where the second prompt's own tokens began";
      return Must(GenerateTokens(*kept.session, sequence, 9, {}, {}, always));
    }());
    sequence.resize(40, 5);
    EXPECT_EQ(kept.session->KeepPrefixOf(sequence), 22) << "a copy can be put back any number of times";
    sequence[7] = (sequence[7] + 1) % 7;
    EXPECT_EQ(kept.session->KeepPrefixOf(sequence), 0) << "the only copy was made behind that token";
    std::vector<int32_t> prompt = RandomTokens(60, 5);
    Must(GenerateTokens(*kept.session, prompt, 1, {}, {}, always).status());
    prompt.back() = (prompt.back() + 1) % 7;
    EXPECT_EQ(kept.session->KeepPrefixOf(prompt), 32) << "of its runs of 16 the last that ended 16 before its end";
    fresh.session->Reset();
    EXPECT_EQ(Must(GenerateTokens(*kept.session, prompt, 3, {}, {}, always)),
              Must(GenerateTokens(*fresh.session, prompt, 3, {}, {}, always)));
    return;
  }
  EXPECT_EQ(kept.session->KeepPrefixOf(sequence), 32) << "all but the last token, whose logits are wanted";
  sequence[7] = (sequence[7] + 1) % 7;
  EXPECT_EQ(kept.session->KeepPrefixOf(sequence), 7);
  EXPECT_EQ(kept.session->KeepPrefixOf(std::span(sequence).first(1)), 0);
}

TEST_P(Decoding, GenerationStopsAtTheContextAtStopTokensAndWhenTold) {
  const Family& f = GetParam();
  tiny::TinyRun run({.config = f.config, .method = f.method, .row = 32, .micro_batches = 1});
  Decoder decoder(f.config, run, TargetsOf(f), DType::kF32, 24);
  const std::vector<int32_t> prompt = RandomTokens(20, 3);
  const auto always = [](int32_t) { return true; };
  const auto all = Must(GenerateTokens(*decoder.session, prompt, 100, {}, {}, always));
  EXPECT_EQ(all.size(), 5u) << "four fit after the prompt; the fifth need not be fed";
  decoder.session->Reset();
  EXPECT_EQ(Must(GenerateTokens(*decoder.session, prompt, 2, {}, {}, always)),
            std::vector<int32_t>(all.begin(), all.begin() + 2));
  decoder.session->Reset();
  const std::vector<int32_t> stop = {all[0]};
  EXPECT_TRUE(Must(GenerateTokens(*decoder.session, prompt, 100, {}, stop, always)).empty());
  decoder.session->Reset();
  EXPECT_EQ(Must(GenerateTokens(*decoder.session, prompt, 100, {}, {}, [](int32_t) { return false; })).size(), 1u);
  decoder.session->Reset();
  EXPECT_FALSE(GenerateTokens(*decoder.session, {}, 4, {}, {}, always).ok()) << "no prompt";
  EXPECT_FALSE(GenerateTokens(*decoder.session, RandomTokens(25, 1), 4, {}, {}, always).ok()) << "too long a prompt";
  EXPECT_EQ(decoder.session->length(), 0) << "and nothing was fed";
}

// As generate does with transformers' Phi-3: beyond the original length the whole sequence has the long factors.
TEST(DecodingOfLongSequences, WhereLongropeSwitchesTheCacheIsMadeAgain) {
  tiny::TinyRun run({.config = tiny::LongropeConfigText(), .row = 32, .micro_batches = 1});
  Decoder growing(tiny::LongropeConfigText(), run, {}, DType::kF32, 64),
      fresh(tiny::LongropeConfigText(), run, {}, DType::kF32, 64);
  const std::vector<int32_t> sequence = RandomTokens(30, 8);
  for (size_t n = 1; n <= sequence.size(); ++n) {
    const std::vector<float> a = growing.After({&sequence[n - 1], 1});
    if (n < 23) continue;
    fresh.session->Reset();
    const std::vector<float> b = fresh.After(std::span(sequence).first(n));
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << "logit " << i << " after " << n;
  }
  EXPECT_EQ(growing.session->length(), 30);
  EXPECT_EQ(growing.session->KeepPrefixOf(std::span(sequence).first(25)), 24) << "made with the long factors, too";
  EXPECT_EQ(growing.session->KeepPrefixOf(std::span(sequence).first(24)), 0);
}

TEST(DecodingOfLongSequences, MakingTheCacheAgainStopsWhenTold) {
  tiny::TinyRun run({.config = tiny::LongropeConfigText(), .row = 32, .micro_batches = 1});
  Decoder decoder(tiny::LongropeConfigText(), run, {}, DType::kF32, 40);
  ASSERT_LT(decoder.engine->longest_step(), 25) << "so that the 25 tokens after the switch take several steps";
  const std::vector<int32_t> prompt = RandomTokens(22, 3);
  const auto always = [](int32_t) { return true; };
  const auto all = Must(GenerateTokens(*decoder.session, prompt, 10, {}, {}, always));
  decoder.session->Reset();
  int asked = 0;  // once within the prompt of 22 tokens, then after the switch
  EXPECT_EQ(Must(GenerateTokens(*decoder.session, prompt, 10, {}, {}, always, [&] { return ++asked > 1; })),
            std::vector<int32_t>(all.begin(), all.begin() + 3));
  EXPECT_EQ(decoder.session->length(), 0);
  decoder.session->Reset();
  EXPECT_EQ(Must(GenerateTokens(*decoder.session, prompt, 10, {}, {}, always, [] { return false; })), all);
}

// As generate does with dynamic scaling: a prompt is made for its own length, each further token for one more, and what
// the cache holds stays. tests/parity has transformers' tokens.
TEST(DecodingOfLongSequences, WithDynamicScalingAPromptIsMadeForItsLengthAndKeysStay) {
  tiny::TinyRun run({.config = tiny::DynamicRopeConfigText(), .row = 32, .micro_batches = 1});
  Decoder whole(tiny::DynamicRopeConfigText(), run, {}, DType::kF32, 64),
      pieces(tiny::DynamicRopeConfigText(), run, {}, DType::kF32, 64);
  const std::vector<int32_t> sequence = RandomTokens(40, 8);
  const auto difference = [&](size_t first) {  // of a prompt fed at once, and fed in two pieces
    whole.session->Reset();
    const std::vector<float> a = whole.After(sequence);
    pieces.After(std::span(sequence).first(first));
    const std::vector<float> b = pieces.After(std::span(sequence).subspan(first));
    double most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max<double>(most, std::abs(a[i] - b[i]));
    return most;
  };
  pieces.session->KeepPrefixOf(sequence);
  EXPECT_LE(difference(30), 1e-4);
  pieces.session->Reset();
  EXPECT_GE(difference(30), 1e-3) << "keys made for 30 tokens are others than those made for 40";
  EXPECT_EQ(pieces.session->KeepPrefixOf(sequence), 0) << "a new prompt is made for its length";
  pieces.session->Reset();
  pieces.After(std::span(sequence).first(20));
  EXPECT_EQ(pieces.session->KeepPrefixOf(std::span(sequence).first(24)), 20);
  EXPECT_EQ(pieces.session->KeepPrefixOf(std::span(sequence).first(25)), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, Decoding,
    testing::Values(Family{"llama_tied", tiny::LlamaConfigText(true), tiny::Method::kFull},
                    Family{"llama_lora_head", tiny::LlamaConfigText(true), tiny::Method::kLoraWithHead},
                    Family{"qwen3", tiny::Qwen3ConfigText(), tiny::Method::kLora},
                    Family{"longrope", tiny::LongropeConfigText(), tiny::Method::kFull},
                    Family{"gemma2", tiny::Gemma2ConfigText(), tiny::Method::kLora},
                    Family{"gemma3", tiny::Gemma3ConfigText(), tiny::Method::kFull},
                    Family{"gemma4", tiny::Gemma4ConfigText(), tiny::Method::kFull},
                    Family{"gpt2", tiny::Gpt2ConfigText(), tiny::Method::kLora},
                    Family{"starcoder2", tiny::Starcoder2ConfigText(), tiny::Method::kFull},
                    Family{"phi_lora_head", tiny::PhiConfigText(), tiny::Method::kLoraWithHead},
                    Family{"stablelm", tiny::StableLmConfigText(), tiny::Method::kFull},
                    Family{"lfm2", tiny::Lfm2ConfigText(), tiny::Method::kLora, false},
                    Family{"qwen3_5", tiny::Qwen35ConfigText(), tiny::Method::kFull, false},
                    Family{"granite_hybrid", tiny::GraniteHybridConfigText(), tiny::Method::kLora, false},
                    Family{"falcon_h1", tiny::FalconH1ConfigText(), tiny::Method::kLora, false},
                    Family{"qwen3_moe", tiny::Qwen3MoeConfigText(), tiny::Method::kLora},
                    Family{"qwen3_next", tiny::Qwen3NextConfigText(), tiny::Method::kLora, false},
                    Family{"glm4_moe", tiny::Glm4MoeConfigText(), tiny::Method::kFull},
                    Family{"deepseek_v3", tiny::DeepseekV3ConfigText(), tiny::Method::kLora},
                    Family{"youtu", tiny::YoutuConfigText(), tiny::Method::kFull},
                    Family{"gpt_oss", tiny::GptOssConfigText(), tiny::Method::kFull},
                    Family{"nemotron_h", tiny::NemotronHConfigText(), tiny::Method::kFull, false},
                    Family{"granite", tiny::GraniteConfigText(), tiny::Method::kFull},
                    Family{"opt", tiny::OptConfigText(true), tiny::Method::kFull},
                    Family{"opt_post_norm_lora", tiny::OptConfigText(false), tiny::Method::kLora}),
    [](const testing::TestParamInfo<Family>& info) { return info.param.name; });

}  // namespace
}  // namespace temper::decoding_test
