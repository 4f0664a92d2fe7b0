// Adapters that are part of the products that they add to (compile/step/join_adapters.h) train like those that are
// products of their own: a sum that was rounded twice is rounded once.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "graph/named_ops.h"
#include "training_steps.h"

namespace temper::tiny::joined_adapters_test {
namespace {

int ProductsOfTwoPairs(const TinyRun& run, Op op) {
  int count = 0;
  for (const Segment& segment : run.train().segments) {
    for (const Instruction& i : segment.instructions) count += i.op == op && i.attributes.Flag("pair2");
  }
  return count;
}

// In f32 losses of the first step differ by roundings of sums of some 10^2 terms, in bf16 by those of values that are
// rounded once less, each off by 2^-9 of itself. AdamW's first steps are as long for small gradients as for large ones,
// so of later steps only the sums of losses are compared.
void ExpectAlike(RunSpec spec, double tolerance) {
  spec.method = Method::kLora;
  spec.joins_adapters = false;
  const Outcome apart = Train(spec);
  EXPECT_EQ(ProductsOfTwoPairs(TinyRun(spec), Op::kLinear), 0);
  spec.joins_adapters = true;
  const Outcome joined = Train(spec);
  EXPECT_GT(ProductsOfTwoPairs(TinyRun(spec), Op::kLinear), 0);
  if (spec.dropout == 0) {
    EXPECT_GT(ProductsOfTwoPairs(TinyRun(spec), Op::kLinearDx), 0);
  }
  ASSERT_EQ(joined.losses.size(), apart.losses.size());
  const size_t tokens = joined.losses.size() / 3;  // of a step, or of the evaluation behind two
  for (size_t i = 0; i < tokens; ++i) {
    EXPECT_NEAR(joined.losses[i], apart.losses[i], tolerance * std::fabs(apart.losses[i])) << i;
  }
  for (size_t step = 0; step < 3; ++step) {
    const auto sum = [&](const Outcome& o) {
      const auto begin = o.losses.begin() + static_cast<ptrdiff_t>(step * tokens);
      return std::accumulate(begin, begin + static_cast<ptrdiff_t>(tokens), 0.0);
    };
    EXPECT_NEAR(sum(joined), sum(apart), tolerance * sum(apart)) << "step " << step;
  }
  for (size_t i = 0; i < joined.norms.size(); ++i) {
    EXPECT_NEAR(joined.norms[i], apart.norms[i], 10 * tolerance * apart.norms[i]) << i;
  }
}

TEST(JoinedAdapters, TrainLikeThoseThatAreApart) {
  for (const std::string& config :
       {LlamaConfigText(true), LlamaConfigText(false), Phi3ConfigText(), Gemma2ConfigText(), Cohere2ConfigText(),
        GptNeoXConfigText(), OptConfigText(true), GraniteConfigText()}) {
    SCOPED_TRACE(config.substr(0, 60));
    ExpectAlike({.config = config, .micro_batches = 2}, 1e-5);
    ExpectAlike({.config = config, .dropout = 0.1, .micro_batches = 2}, 1e-5);
    ExpectAlike({.config = config, .dtype = DType::kBF16, .micro_batches = 2}, 1e-2);
  }
}

TEST(JoinedAdapters, TrainOnAQuantisedBase) {
  for (const ElementFormat format : {ElementFormat::Int8Rows(), ElementFormat::Nf4()}) {
    ExpectAlike({.dtype = DType::kBF16, .base = {.format = format}, .micro_batches = 2}, 1e-2);
  }
}

// Recomputed adapters have the bits of the first time, also where their scale goes to what they are made of.
TEST(JoinedAdapters, RecomputingThemChangesNoBit) {
  // Phi3: one h for q, k and v. Granite: products that are scaled themselves.
  for (const std::string& config : {LlamaConfigText(true), Phi3ConfigText(), GraniteConfigText()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const double dropout : {0.0, 0.1}) {
        RunSpec spec{.config = config, .method = Method::kLora, .dtype = dtype, .dropout = dropout, .micro_batches = 2};
        const Outcome kept = Train(spec);
        for (const Recompute mode : {Recompute::kSelective, Recompute::kBlock}) {
          spec.recompute = mode;
          ExpectSameResults(Train(spec), kept);
        }
      }
    }
  }
}

}  // namespace
}  // namespace temper::tiny::joined_adapters_test
