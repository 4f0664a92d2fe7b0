// linear_cross_entropy whose vocabulary ranks share, against that of one rank.
#include <gtest/gtest.h>

#include <string>

#include "backend/cpu/products/shared_vocabulary_runs.h"
#include "graph/named_ops.h"

namespace temper::shared_vocabulary_test {
namespace {

std::vector<TestTensors> RunOnIsas(const LossRun& whole, const std::vector<int64_t>& cuts, const std::vector<Isa>& isas,
                                   int threads, bool in_place, Op op = Op::kLinearCrossEntropy) {
  return RunShared(
      whole, cuts,
      [&](int rank, ExchangeGroup& group) {
        return MakeCpuKernels(
            {.threads = threads, .isa = isas[static_cast<size_t>(rank)], .exchange = [rank, &group](AxisSet axes) {
               EXPECT_EQ(axes, AxisSet(Axis::kTp));
               return Result<std::unique_ptr<Exchange>>(group.Join(rank));
             }});
      },
      [&](int rank) { return isas[static_cast<size_t>(rank)] > Isa::kScalar; }, threads, in_place, op);
}

void CheckSharedLoss(DType dtype) {
  for (const LossCase& c : kLossCases) {
    if (c.V < 4) continue;
    for (const std::vector<int64_t>& cuts : CutsOf(c.V)) {
      LossRun whole(c, dtype);
      AimAtEdges(cuts, &whole.inputs[2]);
      whole.bounds = LossBoundsOf(c, dtype, whole.inputs);
      const TestTensors want = RunReference({Op::kLinearCrossEntropy, whole.attributes, &whole.inputs});
      const size_t ranks = cuts.size() - 1;
      for (Isa isa : RunnableIsas()) {
        const std::string what = std::string(c.name) + " " + std::string(ToString(dtype)) + " on " +
                                 std::string(ToString(isa)) + " of " + std::to_string(ranks) + " ranks";
        const auto one = RunOnIsas(whole, cuts, std::vector(ranks, isa), 1, /*in_place=*/false);
        ExpectTogether(whole, want, one, what);
        for (int threads : {2, 3}) {
          const auto again = RunOnIsas(whole, cuts, std::vector(ranks, isa), threads, /*in_place=*/true);
          for (size_t r = 0; r < ranks; ++r) {
            for (size_t o = 0; o < want.size(); ++o) {
              EXPECT_TRUE(again[r][o].SameBits(one[r][o])) << what << " output " << o << " threads " << threads;
            }
          }
        }
      }
      // Every rank another instruction set, one of them the scalar twin.
      std::vector<Isa> mixed;
      for (size_t r = 0; r < ranks; ++r) mixed.push_back(RunnableIsas()[r % RunnableIsas().size()]);
      ExpectTogether(whole, want, RunOnIsas(whole, cuts, mixed, 1, false), std::string(c.name) + " mixed");
    }
  }
}

TEST(SharedVocabulary, HasTheLossAndGradientsOfTheWholeInF32) {
  CheckSharedLoss(DType::kF32);
}
TEST(SharedVocabulary, HasTheLossAndGradientsOfTheWholeInBF16) {
  CheckSharedLoss(DType::kBF16);
}

TEST(SharedVocabulary, HasTheLogProbabilitiesOfTheWhole) {
  for (const LossCase& c : kLossCases) {
    if (c.V < 4 || c.weighted || c.smoothing > 0) continue;
    for (const std::vector<int64_t>& cuts : CutsOf(c.V)) {
      LossRun whole(c, DType::kBF16);
      AimAtEdges(cuts, &whole.inputs[2]);
      const size_t ranks = cuts.size() - 1;
      for (const Isa isa : RunnableIsas()) {
        const std::vector<Isa> isas(ranks, isa);
        const auto losses = RunOnIsas(whole, cuts, isas, 1, false);
        const auto logprobs = RunOnIsas(whole, cuts, isas, 2, false, Op::kTokenLogprob);
        for (size_t r = 0; r < ranks; ++r) {
          ASSERT_EQ(logprobs[r].size(), 1u);
          for (int64_t t = 0; t < c.T; ++t) EXPECT_EQ(logprobs[r][0].Get(t), -losses[r][0].Get(t)) << c.name;
        }
      }
    }
  }
}

// One rank of a group whose other member does what the test says.
class ScriptedExchange final : public Exchange {
 public:
  explicit ScriptedExchange(std::function<Status(std::span<const float>, std::span<float>)> all_gather, int size = 2)
      : all_gather_(std::move(all_gather)), size_(size) {}
  int index() const override { return 0; }
  int size() const override { return size_; }
  Status AllGather(std::span<const float> mine, std::span<float> all) override { return all_gather_(mine, all); }

 private:
  const std::function<Status(std::span<const float>, std::span<float>)> all_gather_;
  const int size_;
};

// x, w of the first 6 of 10 words, 7 targets.
struct FirstOfTwo {
  TestTensors inputs;
  Attributes attributes = {{"axes", std::string("tp")},
                           {"ranks", int64_t{2}},
                           {"whole", int64_t{10}},
                           {"grad_x", int64_t{1}},
                           {"chunk", int64_t{2}}};
  TestTensors outputs;

  FirstOfTwo() {
    inputs.push_back(RandomTensor({DType::kF32, {7, 8}}, 1));
    inputs.push_back(RandomTensor({DType::kF32, {6, 8}}, 2));
    inputs.emplace_back(TensorType{DType::kI32, {7}});
    for (int64_t t = 0; t < 7; ++t) inputs[2].Set(t, static_cast<double>(t + 1));
  }
  Result<std::unique_ptr<Kernel>> Make(const CpuOptions& options) {
    spec_ = {.op = Op::kLinearCrossEntropy, .attributes = attributes, .threads = options.threads};
    for (const TestTensor& t : inputs) spec_.inputs.push_back(t.type());
    spec_.outputs = *InferTypes(spec_.op, spec_.inputs, attributes);
    spec_.workspace = RuleOf(spec_.op).workspace(spec_.inputs, spec_.outputs, attributes, options.threads);
    return MakeCpuKernels(options)->Make(spec_);
  }
  Status Run(Kernel& kernel) {
    outputs.clear();
    for (const TensorType& t : spec_.outputs) outputs.emplace_back(t);
    TestTensor workspace({DType::kF32, {spec_.workspace.v / 4}});
    std::vector<std::byte*> in, out;
    for (const TestTensor& t : inputs) in.push_back(t.data());
    for (const TestTensor& t : outputs) out.push_back(t.data());
    return kernel.Run({in.data(), out.data(), workspace.data()});
  }

 private:
  KernelSpec spec_;
};

TEST(SharedVocabulary, NeedsAnExchangeWithAsManyRanksAsTheProgramWasMadeFor) {
  for (Isa isa : RunnableIsas()) {
    FirstOfTwo loss;
    const auto without = loss.Make({.isa = isa});
    EXPECT_EQ(without.status().code(), StatusCode::kUnsupported) << without.status().message();
    const auto of_three =
        loss.Make({.isa = isa, .exchange = [](AxisSet) {
                     return Result<std::unique_ptr<Exchange>>(std::make_unique<ScriptedExchange>(nullptr, 3));
                   }});
    EXPECT_EQ(of_three.status().code(), StatusCode::kInvalidArgument) << of_three.status().message();
    const auto failed = loss.Make(
        {.isa = isa, .exchange = [](AxisSet) { return Result<std::unique_ptr<Exchange>>(Corrupt("rank 1 is gone")); }});
    EXPECT_EQ(failed.status().message(), "rank 1 is gone");
  }
}

TEST(SharedVocabulary, ReturnsTheErrorOfItsExchange) {
  for (Isa isa : RunnableIsas()) {
    for (int threads : {1, 3}) {
      FirstOfTwo loss;
      int calls = 0;
      bool broken = true;
      const auto exchange = [&](std::span<const float> mine, std::span<float> all) {
        std::copy(mine.begin(), mine.end(), all.begin());
        std::copy(mine.begin(), mine.end(), all.begin() + mine.size());
        return ++calls == 2 && broken ? Corrupt("rank 1 is gone") : OkStatus();
      };
      auto kernel = loss.Make({.threads = threads, .isa = isa, .exchange = [&](AxisSet) {
                                 return Result<std::unique_ptr<Exchange>>(std::make_unique<ScriptedExchange>(exchange));
                               }});
      ASSERT_TRUE(kernel.ok()) << kernel.status().message();
      EXPECT_EQ(loss.Run(**kernel).message(), "rank 1 is gone");
      EXPECT_EQ(calls, 2) << "chunks after the failure ask again";
      broken = false;
      EXPECT_TRUE(loss.Run(**kernel).ok());
      EXPECT_EQ(calls, 2 + 4) << "7 rows in chunks of 2";
    }
  }
}

TEST(SharedVocabulary, RefusesATargetBeyondTheWholeBeforeItMeetsOthers) {
  for (Isa isa : RunnableIsas()) {
    FirstOfTwo loss;
    int calls = 0;
    const auto exchange = [&](std::span<const float>, std::span<float>) {
      ++calls;
      return OkStatus();
    };
    auto kernel = loss.Make({.isa = isa, .exchange = [&](AxisSet) {
                               return Result<std::unique_ptr<Exchange>>(std::make_unique<ScriptedExchange>(exchange));
                             }});
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    loss.inputs[2].Set(6, 10);
    EXPECT_EQ(loss.Run(**kernel).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(calls, 0);
  }
}

TEST(SharedVocabulary, HandsOnNaNFromAnyRank) {
  for (Isa isa : RunnableIsas()) {
    FirstOfTwo loss;
    const auto exchange = [&](std::span<const float> mine, std::span<float> all) {
      std::copy(mine.begin(), mine.end(), all.begin());
      std::copy(mine.begin(), mine.end(), all.begin() + mine.size());
      for (size_t i = mine.size(); i < all.size(); ++i) all[i] = NAN;
      return OkStatus();
    };
    auto kernel = loss.Make({.isa = isa, .exchange = [&](AxisSet) {
                               return Result<std::unique_ptr<Exchange>>(std::make_unique<ScriptedExchange>(exchange));
                             }});
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    ASSERT_TRUE(loss.Run(**kernel).ok());
    for (const TestTensor& output : loss.outputs) {
      for (int64_t i = 0; i < output.type().shape.elements(); ++i) EXPECT_TRUE(std::isnan(output.Get(i))) << i;
    }
  }
}

}  // namespace
}  // namespace temper::shared_vocabulary_test
