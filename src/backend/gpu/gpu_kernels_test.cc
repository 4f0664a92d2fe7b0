// The table of kernels, the loss, the update and what kernels say of wrong data.
#include "backend/gpu/gpu_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "backend/cpu/products/loss_twin.h"
#include "backend/gpu/faults.h"
#include "backend/gpu/gpus_under_test.h"
#include "device/device.h"
#include "graph/named_ops.h"
#include "graph/update_rule.h"
#include "tensor/dynamic_blocks.h"
#ifdef TEMPER_GPU_EMULATED
#include "backend/gpu/emulator/host_products.h"
#endif

namespace temper::gpu_kernels_test {
namespace {

// What a GPU cannot run stands here.
TEST(GpuKernels, LackNoOpButThoseNamedHere) {
  const std::set<Op> listed = {
#define TEMPER_GPU_KERNEL(op) Op::k##op,
#define TEMPER_GPU_PRODUCT(op) Op::k##op,
#include "backend/gpu/kernel_list.inc"
  };
  const std::set<Op> lacking = {Op::kLinearDistillation,
                                Op::kStochasticRound,
                                Op::kPreference,
                                Op::kClassReport,
                                Op::kRewardLoss,
                                Op::kShortConv,
                                Op::kShortConvBackward,
                                Op::kShortConvCached,
                                Op::kDecay,
                                Op::kDecayBackward,
                                Op::kGatedDelta,
                                Op::kGatedDeltaBackward,
                                Op::kGatedDeltaCached,
                                Op::kRoute,
                                Op::kRouteBackward,
                                Op::kGatherRows,
                                Op::kCombine,
                                Op::kCombineBackward,
                                Op::kExpertLoad,
                                Op::kRouterSum,
                                Op::kRouterSumBackward,
                                Op::kBalance,
                                Op::kBalanceBackward,
                                Op::kGroupedLinear,
                                Op::kGroupedLinearDx,
                                Op::kGroupedLinearDw,
                                Op::kAppendToHeads,
                                Op::kAppendToHeadsBackward,
                                Op::kGateHeads,
                                Op::kGateHeadsBackward,
                                Op::kUnstack,
                                Op::kUnstackBackward,
                                Op::kSsd,
                                Op::kSsdCached,
                                Op::kSsdBackward,
                                Op::kUnpairedPreference,
                                Op::kMuon,
                                Op::kAdafactor,
                                Op::kAverage,
                                Op::kXielu,
                                Op::kXieluBackward,
                                Op::kClamp,
                                Op::kClampBackward,
                                Op::kRowSquares,
                                Op::kScaleColumns,
                                Op::kScaleColumnsBackward};
  for (int i = 0; i < NumOps(); ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_EQ(listed.count(op) == 1, RunnerOf(op) == OpRunner::kKernel && lacking.count(op) == 0) << ToString(op);
    if (listed.count(op) == 1) continue;
    for (const GpuTables& gpu : GpusUnderTest()) {
      const auto kernel = gpu.table->Make({.op = op});
      ASSERT_FALSE(kernel.ok());
      EXPECT_EQ(kernel.status().message(), "the GPU backend has no kernel for " + std::string(ToString(op)));
    }
  }
}

TEST(GpuLoss, MatchesTheScalarTwin) {
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (const LossCase& c : kLossCases) {
      const LossRun run(c, dtype);
      const TwinRun twin{Op::kLinearCrossEntropy, run.attributes, &run.inputs};
      const TestTensors want = RunReference(twin);
      for (const GpuTables& gpu : GpusUnderTest()) {
        const std::string what = std::string(c.name) + " " + std::string(ToString(dtype)) + " on " + gpu.table->name();
        const TestTensors got = RunKernel(twin, *gpu.table, /*fast=*/true, 1);
        ASSERT_EQ(got.size(), want.size()) << what;
        for (size_t o = 0; o < want.size(); ++o) {
          ExpectNear(
              got[o], want[o], 2.02 * UnitRoundoff(want[o].type().dtype), [&](int64_t i) { return run.Bound(o, i); },
              what + " output " + std::to_string(o));
        }
        const TwinRun in_place{Op::kLinearCrossEntropy, run.attributes, &run.inputs, run.in_place, /*runs=*/1};
        const TestTensors again = RunKernel(in_place, *gpu.again, /*fast=*/true, 1);
        for (size_t o = 0; o < want.size(); ++o) EXPECT_TRUE(again[o].SameBits(got[o])) << what << " in place " << o;
      }
    }
  }
}

#ifdef TEMPER_GPU_EMULATED
// The stream of the emulator, as a kernel sees it that must not wait for it.
class Unawaited final : public Stream {
 public:
  Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override {
    return HostStream().CopyToDevice(host, device);
  }
  Status CopyToHost(const std::byte*, std::span<std::byte>) override { return IoError("the host asks for a number"); }
  Status Synchronize() override { return IoError("the host waits"); }
};

TEST(GpuTokenLogprob, IsTheLossWithTheOtherSign) {
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (const LossCase& c : kLossCases) {
      if (c.weighted || c.smoothing > 0) continue;
      const LossRun loss(c, dtype);
      const LogprobRun run(loss);
      for (const GpuTables& gpu : GpusUnderTest()) {
        const TestTensors want =
            RunKernel({Op::kLinearCrossEntropy, loss.attributes, &loss.inputs}, *gpu.table, /*fast=*/true, 1);
        const TestTensors got = RunKernel({Op::kTokenLogprob, run.attributes, &run.inputs}, *gpu.table, true, 1);
        ASSERT_EQ(got.size(), 1u);
        for (int64_t t = 0; t < c.T; ++t) EXPECT_EQ(got[0].Get(t), -want[0].Get(t)) << c.name << " " << t;
      }
    }
  }
}

TEST(GpuLoss, TheHostDoesNotWaitForANumberThatIsInTheTargetsItHasLoaded) {
  for (const LossCase& c : kLossCases) {
    const LossRun run(c, DType::kBF16);
    const TwinRun twin{Op::kLinearCrossEntropy, run.attributes, &run.inputs};
    const TestTensors want = RunKernel(twin, *MakeEmulatedGpuKernels({}), /*fast=*/true, 1);
    KernelSpec spec{.op = Op::kLinearCrossEntropy, .attributes = run.attributes};
    std::vector<std::byte*> in, out;
    std::vector<const std::byte*> loaded(run.inputs.size(), nullptr);
    for (const TestTensor& t : run.inputs) {
      spec.inputs.push_back(t.type());
      in.push_back(t.data());
    }
    loaded[2] = in[2];
    TestTensors got;
    spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
    got.reserve(spec.outputs.size());
    for (const TensorType& t : spec.outputs) out.push_back(got.emplace_back(t).data());
    spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, spec.attributes, 1);
    TestTensor workspace({DType::kF32, {(spec.workspace.v + 3) / 4}});
    Unawaited stream;
    const simt::Machine machine;
    std::array<int64_t, gpu::kMaxFaults> words = {};
    gpu::Faults faults(words.data());
    const auto kernel = gpu::MakeGpuKernel(
        spec, {.stream = &machine, .copies = &stream, .faults = &faults, .products = &gpu::HostProducts()});
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    const Status status = (*kernel)->Run(
        {.inputs = in.data(), .outputs = out.data(), .workspace = workspace.data(), .loaded = loaded.data()});
    ASSERT_TRUE(status.ok()) << c.name << ": " << status.message();
    for (size_t o = 0; o < want.size(); ++o) EXPECT_TRUE(got[o].SameBits(want[o])) << c.name << " output " << o;
  }
}
#endif

// An instruction for what kernel_twin.h does not judge.
struct Single {
  KernelSpec spec;
  TestTensors inputs, outputs;
  std::unique_ptr<KernelTable> table = GpuToSpoil();
  std::unique_ptr<Kernel> kernel;

  Single(Op op, Attributes attributes, TestTensors given) : inputs(std::move(given)) {
    spec = {.op = op, .attributes = std::move(attributes)};
    for (const TestTensor& t : inputs) spec.inputs.push_back(t.type());
    spec.outputs = *InferTypes(op, spec.inputs, spec.attributes);
    for (const TensorType& t : spec.outputs) outputs.emplace_back(t);
    const OpRule& rule = RuleOf(op);
    if (rule.workspace) spec.workspace = rule.workspace(spec.inputs, spec.outputs, spec.attributes, 1);
    auto made = table->Make(spec);
    TEMPER_CHECK(made.ok()) << made.status().message();
    kernel = std::move(*made);
  }
  Status Run() {
    TestTensor workspace({DType::kF32, {(spec.workspace.v + 3) / 4}});
    std::vector<std::byte*> in, out;
    for (const TestTensor& t : inputs) in.push_back(t.data());
    for (const TestTensor& t : outputs) out.push_back(t.data());
    Status status = kernel->Run({in.data(), out.data(), workspace.data()});
    for (const TestTensor& t : outputs) EXPECT_TRUE(t.GuardIntact());
    return status;
  }
};

TestTensors TableAndTokens(std::initializer_list<int> tokens) {
  TestTensors inputs;
  inputs.push_back(RandomTensor({DType::kF32, {10, 4}}, 1));
  inputs.emplace_back(TensorType{DType::kI32, {static_cast<int64_t>(tokens.size())}});
  int64_t i = 0;
  for (int token : tokens) inputs[1].Set(i++, token);
  return inputs;
}

TEST(GpuFaults, AWordIsGivenBackWithItsKernelAndGoesToTheNext) {
  std::array<int64_t, gpu::kMaxFaults> words = {};
  gpu::Faults faults(words.data());
  const auto report = [&](const std::string& who) {
    return faults.Register([who](int64_t word) { return who + " " + std::to_string(word); });
  };
  const gpu::Faults::Word first = report("first");
  for (int i = 0; i < 3 * gpu::kMaxFaults; ++i) {  // more than there are words, one after the other
    const gpu::Faults::Word word = report("another");
    ASSERT_NE(word.get(), first.get());
    ASSERT_TRUE(word.get() >= words.data() && word.get() < words.data() + words.size());
  }
  const gpu::Faults::Word last = report("last");
  EXPECT_TRUE(faults.Check(words).ok());
  *last = 7;
  EXPECT_EQ(faults.Check(words).message(), "last 7");
  *first = 3;
  EXPECT_EQ(faults.Check(words).message(), "first 3");
}

TEST(GpuFaults, ATokenOutsideOfTheTableIsNamedAndReadsNothing) {
  if (GpuToSpoil() == nullptr) GTEST_SKIP() << "no GPU";
  for (const int bad : {-1, 10, 2147483647, -2147483647}) {
    Single embedding(Op::kEmbedding, {}, TableAndTokens({0, 9, bad}));
    const Status status = embedding.Run();
    EXPECT_NE(status.message().find("token 2 of the batch"), std::string::npos) << bad << status.message();
    for (int64_t d = 8; d < 12; ++d) EXPECT_EQ(embedding.outputs[0].Get(d), 0);

    TestTensors gradient;
    gradient.push_back(RandomTensor({DType::kF32, {3, 4}}, 2));
    gradient.push_back(TableAndTokens({0, 9, bad})[1].Copy());
    Single backward(Op::kEmbeddingBackward, {{"vocab", int64_t{10}}}, std::move(gradient));
    EXPECT_NE(backward.Run().message().find("token 2 of the batch"), std::string::npos) << bad;
  }
  Single good(Op::kEmbedding, {}, TableAndTokens({0, 9, 3}));
  EXPECT_TRUE(good.Run().ok());
}

TEST(GpuFaults, ATargetBeyondTheVocabularyIsNamed) {
  if (GpuToSpoil() == nullptr) GTEST_SKIP() << "no GPU";
  TestTensors inputs;
  inputs.push_back(RandomTensor({DType::kF32, {2, 8}}, 1));
  inputs.push_back(RandomTensor({DType::kF32, {5, 8}}, 2));
  inputs.emplace_back(TensorType{DType::kI32, {2}});
  inputs[2].Set(0, 4);
  inputs[2].Set(1, 5);
  Single loss(Op::kLinearCrossEntropy, {{"grad_x", int64_t{1}}}, std::move(inputs));
  const Status status = loss.Run();
  EXPECT_NE(status.message().find("target of row 1 is outside of the vocabulary of 5"), std::string::npos)
      << status.message();
}

TEST(GpuSums, AreTheirTwinsToTheBitOverMoreThanOneLaunchTakes) {
  const auto table = GpuToSpoil();
  if (table == nullptr) GTEST_SKIP() << "no GPU";
  const auto check = [&](Op op, int64_t sums, double max_norm) {
    KernelSpec spec{.op = op};
    std::vector<double> values(static_cast<size_t>(sums)), scalars = {1e-3, 0.1, 0.001, 37};
    std::vector<std::byte*> in;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 1.0 / static_cast<double>(i + 3);
      in.push_back(reinterpret_cast<std::byte*>(&values[i]));
      spec.inputs.push_back({DType::kF64, {1}});
    }
    if (op == Op::kClip) {
      spec.attributes = {{"max_norm", max_norm}};
      in.push_back(reinterpret_cast<std::byte*>(scalars.data()));
      spec.inputs.push_back({DType::kF64, {kNumScalars}});
    }
    spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
    TestTensor got(spec.outputs[0]), want(spec.outputs[0]);
    const auto run = [&](KernelTable& kernels, TestTensor& out) {
      std::byte* outputs[] = {out.data()};
      const auto kernel = kernels.Make(spec);
      ASSERT_TRUE(kernel.ok()) << kernel.status().message();
      ASSERT_TRUE((*kernel)->Run({in.data(), outputs, nullptr}).ok());
    };
    run(*table, got);
    run(ReferenceKernels(), want);
    EXPECT_TRUE(got.SameBits(want)) << ToString(op) << " of " << sums << ", " << max_norm;
  };
  for (const int64_t sums : {0, 1, 2, 255, 256, 257, 600}) {
    for (const double max_norm : {0.0, 1e-3, 1e6}) check(Op::kClip, sums, max_norm);
    check(Op::kSumScalars, sums, 0);
  }
}

TEST(GpuAdamw, IsItsTwinToTheBit) {
  for (int weight = 0; weight < 3; ++weight) {  // none, f32, bf16
    for (const int64_t n : {1, 3, 1024, 5003}) {
      const TensorType f32{DType::kF32, {n}};
      KernelSpec spec{.op = Op::kAdamw,
                      .attributes = {{"beta1", 0.9},
                                     {"beta2", 0.999},
                                     {"eps", 1e-8},
                                     {"weight_decay", 0.01},
                                     {"weight", int64_t{weight > 0}}}};
      TestTensors tensors;
      for (uint32_t i = 0; i < 4; ++i) tensors.push_back(RandomTensor(f32, i + 1, i == 1 ? 50 : 0.1));
      for (int64_t i = 0; i < n; ++i) {
        tensors[3].Set(i, i % 7 == 0 ? 0 : i % 11 == 0 ? 1e-42 : std::fabs(tensors[3].Get(i)));
      }
      if (weight > 0) spec.attributes.Set("dtype", weight == 1 ? "f32" : "bf16");
      if (weight == 2) spec.attributes.Set("lr_factor", 0.3);
      float clip[2] = {1.0f / 37, 5};
      double scalars[kNumScalars] = {3e-4, 1 - std::pow(0.9, 11), 1 - std::pow(0.999, 11), 37};
      spec.inputs = {f32, f32, f32, f32, {DType::kF32, {2}}, {DType::kF64, {kNumScalars}}};
      spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
      const auto run = [&](KernelTable& table) {
        std::vector<std::byte*> in = {tensors[0].data(),
                                      tensors[1].data(),
                                      tensors[2].data(),
                                      tensors[3].data(),
                                      reinterpret_cast<std::byte*>(clip),
                                      reinterpret_cast<std::byte*>(scalars)};
        TestTensors results;
        std::vector<std::byte*> out;
        for (const TensorType& t : spec.outputs) results.emplace_back(t);
        for (const TestTensor& t : results) out.push_back(t.data());
        const auto kernel = table.Make(spec);
        EXPECT_TRUE(kernel.ok() && (*kernel)->Run({in.data(), out.data(), nullptr}).ok());
        for (const TestTensor& t : results) EXPECT_TRUE(t.GuardIntact());
        return results;
      };
      const TestTensors want = run(ReferenceKernels());
      for (const GpuTables& gpu : GpusUnderTest()) {
        const TestTensors got = run(*gpu.table);
        for (size_t o = 0; o < want.size(); ++o) {
          EXPECT_TRUE(got[o].SameBits(want[o])) << "output " << o << " of " << n << " on " << gpu.table->name();
        }
      }
    }
  }
}

TEST(GpuAdamw8bit, IsItsTwinToTheBit) {
  for (int weight = 0; weight < 3; ++weight) {  // none, f32, bf16
    for (const int64_t n : {1, 255, 256, 5003}) {
      const TensorType f32{DType::kF32, {n}}, blocks = DynamicBlocksOf(f32.shape);
      KernelSpec spec{.op = Op::kAdamw8bit, .attributes = UpdateSettings(Op::kAdamw8bit)};
      spec.attributes.Set("weight_decay", 0.01);
      spec.attributes.Set("weight", int64_t{weight > 0});
      if (weight > 0) spec.attributes.Set("dtype", weight == 1 ? "f32" : "bf16");
      if (weight == 2) spec.attributes.Set("lr_factor", 0.3);
      TestTensors tensors;
      tensors.push_back(RandomTensor(f32, 1, 0.1));
      tensors.push_back(RandomTensor(f32, 2, 50));
      for (int64_t i = 0; i < n; i += 3) tensors[1].Set(i, i % 2 == 0 ? 0 : 1e-7 * tensors[1].Get(i));
      for (const float absmax : {0.1f, 1e-3f}) {
        const TestTensor& moment = tensors.emplace_back(blocks);
        for (int64_t i = 0; i < blocks.shape.elements(); ++i) moment.data()[i] = static_cast<std::byte>(i * 37 % 251);
        for (int64_t at = kDynamicBlock; at < blocks.shape.elements(); at += kDynamicBlockBytes) {
          const float of_block = absmax * static_cast<float>(at % 7);
          std::memcpy(moment.data() + at, &of_block, sizeof of_block);
        }
      }
      float clip[2] = {1.0f / 37, 5};
      double scalars[kNumScalars] = {3e-4, 1 - std::pow(0.9, 11), 1 - std::pow(0.999, 11), 37};
      spec.inputs = {f32, f32, blocks, blocks, {DType::kF32, {2}}, {DType::kF64, {kNumScalars}}};
      spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
      const auto run = [&](KernelTable& table) {
        std::vector<std::byte*> in, out;
        for (const TestTensor& t : tensors) in.push_back(t.data());
        in.insert(in.end(), {reinterpret_cast<std::byte*>(clip), reinterpret_cast<std::byte*>(scalars)});
        TestTensors results;
        for (const TensorType& t : spec.outputs) results.emplace_back(t);
        for (const TestTensor& t : results) out.push_back(t.data());
        const auto kernel = table.Make(spec);
        EXPECT_TRUE(kernel.ok() && (*kernel)->Run({in.data(), out.data(), nullptr}).ok());
        for (const TestTensor& t : results) EXPECT_TRUE(t.GuardIntact());
        return results;
      };
      const TestTensors want = run(ReferenceKernels());
      for (const GpuTables& gpu : GpusUnderTest()) {
        const TestTensors got = run(*gpu.table);
        for (size_t o = 0; o < want.size(); ++o) {
          EXPECT_TRUE(got[o].SameBits(want[o])) << "output " << o << " of " << n << " on " << gpu.table->name();
        }
      }
    }
  }
}

TEST(GpuUpdate, OfSgdAndLionIsItsTwinToTheBit) {
  const std::pair<Op, Attributes> optimizers[] = {{Op::kSgd, UpdateSettings(Op::kSgd)},
                                                  {Op::kSgd, UpdateSettings(Op::kSgd, {{"nesterov", 1}})},
                                                  {Op::kSgd, UpdateSettings(Op::kSgd, {{"momentum", 0}})},
                                                  {Op::kLion, UpdateSettings(Op::kLion)}};
  for (const auto& [op, settings] : optimizers) {
    for (int weight = 0; weight < 3; ++weight) {  // none, f32, bf16
      for (const int64_t n : {1, 3, 1024, 5003}) {
        const TensorType f32{DType::kF32, {n}};
        KernelSpec spec{.op = op, .attributes = settings};
        spec.attributes.Set("weight_decay", 0.01);
        spec.attributes.Set("weight", int64_t{weight > 0});
        if (weight > 0) spec.attributes.Set("dtype", weight == 1 ? "f32" : "bf16");
        if (weight == 2) spec.attributes.Set("lr_factor", 0.3);
        const auto count = static_cast<uint32_t>(2 + UpdateRuleOf(op)->StatesOf(settings).size());
        TestTensors tensors;
        std::vector<std::byte*> in;
        for (uint32_t i = 0; i < count; ++i) {
          tensors.push_back(RandomTensor(f32, i + 1, i == 1 ? 50 : 0.1));
          spec.inputs.push_back(f32);
        }
        for (const TestTensor& t : tensors) in.push_back(t.data());
        float clip[2] = {1.0f / 37, 5};
        double scalars[kNumScalars] = {3e-4, 0, 0, 37};
        in.insert(in.end(), {reinterpret_cast<std::byte*>(clip), reinterpret_cast<std::byte*>(scalars)});
        spec.inputs.insert(spec.inputs.end(), {{DType::kF32, {2}}, {DType::kF64, {kNumScalars}}});
        spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
        const auto run = [&](KernelTable& table) {
          TestTensors results;
          std::vector<std::byte*> out;
          for (const TensorType& t : spec.outputs) results.emplace_back(t);
          for (const TestTensor& t : results) out.push_back(t.data());
          const auto kernel = table.Make(spec);
          EXPECT_TRUE(kernel.ok() && (*kernel)->Run({in.data(), out.data(), nullptr}).ok());
          for (const TestTensor& t : results) EXPECT_TRUE(t.GuardIntact());
          return results;
        };
        const TestTensors want = run(ReferenceKernels());
        for (const GpuTables& gpu : GpusUnderTest()) {
          const TestTensors got = run(*gpu.table);
          for (size_t o = 0; o < want.size(); ++o) {
            EXPECT_TRUE(got[o].SameBits(want[o])) << "output " << o << " of " << n << " on " << gpu.table->name();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace temper::gpu_kernels_test
