// Decoding in batches: every sequence gets the logits and the tokens that it gets alone, to the bit.
#include <gtest/gtest.h>

#include <map>

#include "decoder_under_test.h"

namespace temper::batch_decoding_test {
namespace {

using decoding::Decoder;
using decoding::RandomTokens;
using tiny::Must;

struct Model {
  std::string name, config;
  tiny::Method method;
};

std::vector<Model> Models() {
  return {{"llama", tiny::LlamaConfigText(true), tiny::Method::kLora},
          {"gemma2, with windows and caps", tiny::Gemma2ConfigText(), tiny::Method::kFull},
          {"opt", tiny::OptConfigText(true), tiny::Method::kFull},
          {"longrope", tiny::LongropeConfigText(), tiny::Method::kFull},
          {"gemma4, whose last blocks read pages of others", tiny::Gemma4ConfigText(), tiny::Method::kFull},
          {"lfm2", tiny::Lfm2ConfigText(), tiny::Method::kFull},
          {"qwen3_5", tiny::Qwen35ConfigText(), tiny::Method::kLora},
          {"granite_hybrid", tiny::GraniteHybridConfigText(), tiny::Method::kFull},
          {"qwen3_moe", tiny::Qwen3MoeConfigText(), tiny::Method::kLora},
          {"deepseek_v3", tiny::DeepseekV3ConfigText(), tiny::Method::kFull},
          {"gpt_oss", tiny::GptOssConfigText(), tiny::Method::kLora}};
}

std::vector<LoraModule> TargetsOf(const Model& m) {
  if (m.method == tiny::Method::kFull) return {};
  return Must(ResolveLora(tiny::MakeModel(m.config)->modules(), {.r = 4, .alpha = 6}));
}

constexpr int64_t kContext = 100;

// A prompt, then tokens that are fed one by one.
struct Text {
  std::vector<int32_t> tokens;
  size_t prompt;
};
Text TextOf(int i) {
  constexpr size_t kPrompts[] = {1, 70, 5, 33, 17, 90, 2, 16};
  const size_t prompt = kPrompts[i % 8];
  return {RandomTokens(static_cast<int64_t>(prompt) + 3 + i % 5, static_cast<uint64_t>(i + 1)), prompt};
}

using Logits = std::vector<std::vector<float>>;  // after the prompt, and after each further token

Logits Alone(Decoder& decoder, const Text& text) {
  Logits all;
  decoder.session->Reset();
  decoder.session->KeepPrefixOf(std::span(text.tokens).first(text.prompt));
  all.push_back(decoder.After(std::span(text.tokens).first(text.prompt)));
  for (size_t t = text.prompt; t < text.tokens.size(); ++t) all.push_back(decoder.After({&text.tokens[t], 1}));
  return all;
}

// Sequences join one step after the other, as soon as there is a place, and leave when they end.
TEST(BatchDecoding, EverySequenceGetsTheLogitsThatItGetsAlone) {
  constexpr int kTexts = 10;
  struct Case {
    Model model;
    Isa isa;
  };
  std::vector<Case> cases;
  for (const Model& m : Models()) cases.push_back({m, DetectIsa()});
  for (const Isa isa : RunnableIsas()) {
    if (isa != DetectIsa()) cases.push_back({Models()[0], isa});
  }
  for (const auto& [m, isa] : cases) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      tiny::TinyRun run({.config = m.config, .method = m.method, .dtype = dtype, .row = 32, .micro_batches = 1});
      Decoder alone(m.config, run, TargetsOf(m), dtype, kContext, {}, 1, isa);
      std::vector<Logits> want;
      for (int i = 0; i < kTexts; ++i) want.push_back(Alone(alone, TextOf(i)));
      for (const int64_t n : {1, 3, 8}) {
        SCOPED_TRACE(m.name + " " + std::string(ToString(dtype)) + " on " + std::string(ToString(isa)) + ", " +
                     std::to_string(n) + " at a time");
        Decoder together(m.config, run, TargetsOf(m), dtype, kContext, {}, n, isa);
        if (together.session != nullptr) together.engine->Close(together.session);
        struct Reading {
          DecodeSequence* sequence;
          Text text;
          size_t fed = 0, seen = 0;  // tokens, logits
        };
        std::map<int, Reading> reading;
        for (int next = 0; next < kTexts || !reading.empty();) {
          if (next < kTexts) {
            if (DecodeSequence* sequence = together.engine->Open()) {
              reading[next] = {sequence, TextOf(next)};
              sequence->KeepPrefixOf(std::span(reading[next].text.tokens).first(reading[next].text.prompt));
              ++next;
            }
          }
          std::vector<DecodeEngine::Fed> batch;
          for (auto& [i, r] : reading) {
            const size_t count = r.fed == 0 ? r.text.prompt : 1;
            batch.push_back({r.sequence, std::span<const int32_t>(r.text.tokens).subspan(r.fed, count)});
            r.fed += count;
          }
          Must(together.engine->Step(batch));
          for (auto it = reading.begin(); it != reading.end();) {
            auto& [i, r] = *it;
            const auto got = r.sequence->logits();
            ASSERT_EQ(std::vector<float>(got.begin(), got.end()), want[static_cast<size_t>(i)][r.seen++])
                << "sequence " << i << " after " << r.fed << " tokens";
            if (r.fed < r.text.tokens.size()) {
              ++it;
              continue;
            }
            EXPECT_EQ(r.seen, want[static_cast<size_t>(i)].size());
            together.engine->Close(r.sequence);
            it = reading.erase(it);
          }
        }
      }
    }
  }
}

TEST(BatchDecoding, WhatAnotherSequenceBeginsWithIsNotFedAgain) {
  const Model m = Models()[0];
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    tiny::TinyRun run({.config = m.config, .method = m.method, .dtype = dtype, .row = 32, .micro_batches = 1});
    Decoder alone(m.config, run, TargetsOf(m), dtype, 200), together(m.config, run, TargetsOf(m), dtype, 200, {}, 3);
    std::vector<int32_t> a = RandomTokens(150, 1), b(a.begin(), a.begin() + 140);
    for (const int32_t token : RandomTokens(20, 2)) b.push_back(token);
    DecodeSequence *first = together.engine->Open(), *second = together.engine->Open();
    EXPECT_EQ(first->KeepPrefixOf(a), 0);
    Must(first->Feed(a).status());
    ASSERT_EQ(second->KeepPrefixOf(b), 128) << "two pages of 64 of the 140 tokens";
    const auto logits_of = [](std::span<const float> x) { return std::vector<float>(x.begin(), x.end()); };
    EXPECT_EQ(logits_of(Must(second->Feed(std::span(b).subspan(128)))), alone.After(b));
    // Going back into a shared page, the first lets go of it; the second keeps it.
    std::vector<int32_t> c(a.begin(), a.begin() + 100);
    c.push_back(a[100] == 3 ? 4 : 3);
    ASSERT_EQ(first->KeepPrefixOf(c), 64);
    alone.session->Reset();
    EXPECT_EQ(logits_of(Must(first->Feed(std::span(c).subspan(64)))), alone.After(c));
    const int32_t more = 7;
    alone.session->Reset();
    alone.After(b);
    EXPECT_EQ(logits_of(Must(second->Feed({&more, 1}))), alone.After({&more, 1}));
    // All pages come back.
    together.engine->Close(first);
    together.engine->Close(second);
    for (int i = 0; i < 3; ++i) {
      DecodeSequence* again = together.engine->Open();
      ASSERT_NE(again, nullptr);
      Must(again->Feed(RandomTokens(200, static_cast<uint64_t>(i + 5))).status());
    }
    EXPECT_EQ(together.engine->Open(), nullptr);
  }
}

// Sampled, with a penalty, more prompts than places, common beginnings.
TEST(BatchDecoding, AnswersDoNotDependOnHowManyPromptsThereAreAtATime) {
  for (const Model& m : Models()) {
    tiny::TinyRun run({.config = m.config, .method = m.method, .row = 32, .micro_batches = 1});
    std::vector<std::vector<int32_t>> prompts;
    for (int i = 0; i < 7; ++i) {
      Text text = TextOf(i);
      if (i % 2 == 1) text.tokens.insert(text.tokens.begin(), prompts[0].begin(), prompts[0].end());
      text.tokens.resize(std::min<size_t>(text.tokens.size(), 80));
      prompts.push_back(std::move(text.tokens));
    }
    const SamplingSpec sampling{.repetition_penalty = 1.2, .temperature = 0.9, .top_p = 0.95, .seed = 3};
    const std::vector<int32_t> stop = {11, 12, 13};
    std::vector<std::vector<int32_t>> of_one;
    for (const int64_t n : {1, 3, 8}) {
      Decoder decoder(m.config, run, TargetsOf(m), DType::kF32, kContext, {}, n);
      if (decoder.session != nullptr) {
        // Stream 0 is that of a single prompt.
        of_one.push_back(
            Must(GenerateTokens(*decoder.session, prompts[0], 30, sampling, stop, [](int32_t) { return true; })));
        decoder.engine->Close(decoder.session);
      }
      std::vector<std::vector<int32_t>> answers(prompts.size());
      Must(GenerateAll(*decoder.engine, prompts, 30, sampling, stop,
                       [&](size_t i, std::vector<int32_t> tokens) { answers[i] = std::move(tokens); }));
      if (n == 1) {
        EXPECT_EQ(answers[0], of_one[0]) << m.name;
        of_one = answers;
      }
      EXPECT_EQ(answers, of_one) << m.name << ", " << n << " at a time";
    }
  }
}

// More sequences than a context has tokens; and a model whose blocks keep states alone, and no pages.
TEST(BatchDecoding, EverySequenceHasItsPlaceInTheSmallestContext) {
  std::string states_alone = tiny::Lfm2ConfigText();
  const std::string attention = "\"full_attention\"";
  states_alone.replace(states_alone.find(attention), attention.size(), "\"conv\"");
  for (const std::string& config : {tiny::LlamaConfigText(true), states_alone}) {
    tiny::TinyRun run({.config = config, .row = 32, .micro_batches = 1});
    for (const auto& [context, n] : {std::pair<int64_t, int64_t>{2, 5}, {3, 17}}) {
      Decoder alone(config, run, {}, DType::kF32, context), together(config, run, {}, DType::kF32, context, {}, n);
      if (together.session != nullptr) together.engine->Close(together.session);
      std::vector<DecodeSequence*> sequences;
      std::vector<DecodeEngine::Fed> step;
      const std::vector<int32_t> tokens = RandomTokens(n, 5);
      for (int64_t i = 0; i < n; ++i) {
        sequences.push_back(together.engine->Open());
        ASSERT_NE(sequences.back(), nullptr) << i << " of " << n;
        step.push_back({sequences.back(), {&tokens[static_cast<size_t>(i)], 1}});
      }
      ASSERT_TRUE(together.engine->Step(step).ok());
      for (int64_t i = 0; i < n; ++i) {
        alone.session->Reset();
        const std::vector<float> want = alone.After({&tokens[static_cast<size_t>(i)], 1});
        const std::span<const float> got = sequences[static_cast<size_t>(i)]->logits();
        EXPECT_EQ(std::vector<float>(got.begin(), got.end()), want) << "sequence " << i << " of " << n;
      }
    }
  }
}

}  // namespace
}  // namespace temper::batch_decoding_test
