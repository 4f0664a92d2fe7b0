// What is asked of cuDNN. By a library of its functions that computes what a graph of operations means
// (tests/device/cudnn): attention by it, around it what the kernel does with a batch's documents, against the scalar
// twins. And by cuDNN itself where this machine has it: it makes its plans for GPUs that it is told of.
#include "backend/gpu/attention/cudnn_attention.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/cpu/attention/attention_bounds.h"
#include "backend/gpu/attention/cudnn_under_test.h"
#include "backend/gpu/gpus_under_test.h"
#include "graph/named_ops.h"
#include "graph/ops/packed_attention_scratch.h"

namespace temper::gpu::cudnn_attention_test {
namespace {

struct Case {
  const char* name;
  std::vector<int64_t> documents;  // lengths; rows end with one of them
  int64_t row, heads, kv_heads, E;
  std::vector<int64_t> planned;  // the documents of plans that are made
  int runs;                      // per pass

  int64_t tokens() const {
    int64_t T = 0;
    for (const int64_t n : documents) T += n;
    return T;
  }
  AttentionShape shape() const { return {tokens(), heads, kv_heads, E, 1 / std::sqrt(static_cast<double>(E))}; }
};

// 64 rows of one document each, and one of two.
std::vector<int64_t> TwoPieces() {
  std::vector<int64_t> documents(64, 64);
  documents.insert(documents.end(), {30, 34});
  return documents;
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"a row of one document", {40}, 40, 2, 2, 32, {4}, 1},
      {"two rows, grouped heads", {24, 9, 15}, 24, 4, 2, 16, {4}, 1},
      {"more documents than the smallest plan has", {5, 7, 2, 3, 8, 7}, 32, 4, 1, 64, {16}, 1},
      {"padding sees itself alone", {20, 1, 1, 1, 1, 1, 7, 17, 1}, 25, 4, 2, 80, {4}, 1},
      {"one token before, between and behind", {1, 10, 1, 11, 1}, 24, 2, 1, 128, {4}, 1},
      {"two pieces of rows", TwoPieces(), 64, 2, 1, 16, {64}, 2},
  };
  return cases;
}

struct Scene {
  Attributes attributes;
  TestTensors inputs;  // q, k, v, document_start

  explicit Scene(const Case& c)
      : attributes({{"heads", c.heads}, {"kv_heads", c.kv_heads}, {"row", c.row}, {"scale", c.shape().scale}}) {
    const int64_t T = c.tokens();
    inputs.push_back(RandomTensor({DType::kBF16, {T, c.heads * c.E}}, 1));
    inputs.push_back(RandomTensor({DType::kBF16, {T, c.kv_heads * c.E}}, 2));
    inputs.push_back(RandomTensor({DType::kBF16, {T, c.kv_heads * c.E}}, 3));
    inputs.emplace_back(TensorType{DType::kI32, {T}});
    int64_t t = 0;
    for (const int64_t n : c.documents) {
      for (int64_t i = 0; i < n; ++i) inputs[3].Set(t + i, static_cast<double>(t));
      t += n;
    }
  }
  TwinRun forward() const { return {Op::kAttention, attributes, &inputs}; }
  // d_o, q, k, v, o, lse, document_start
  TestTensors InputsOfBackward() const {
    const TestTensors made = RunReference(forward());
    TestTensors all;
    all.push_back(RandomTensor(inputs[0].type(), 5));
    for (size_t i = 0; i < 3; ++i) all.push_back(inputs[i].Copy());
    for (const TestTensor& t : made) all.push_back(t.Copy());
    all.push_back(inputs[3].Copy());
    return all;
  }
};

// A run whose document starts the host has loaded, as the executor's are.
struct Ran {
  Status status = OkStatus();
  bool replayable = true;
  TestTensors outputs;
};
Ran RunLoaded(const TwinRun& run, KernelTable& table, bool loaded = true) {
  KernelSpec spec{.op = run.op, .attributes = run.attributes};
  for (const TestTensor& t : *run.inputs) spec.inputs.push_back(t.type());
  spec.outputs = *RuleOf(run.op).infer(spec.inputs, spec.attributes);
  spec.workspace = RuleOf(run.op).workspace(spec.inputs, spec.outputs, spec.attributes, spec.threads);
  auto kernel = table.Make(spec);
  TEMPER_CHECK(kernel.ok()) << kernel.status().message();
  Ran ran;
  std::vector<std::byte*> in, out;
  std::vector<const std::byte*> on_host(run.inputs->size(), nullptr);
  for (const TestTensor& t : *run.inputs) in.push_back(t.data());
  if (loaded) on_host.back() = in.back();
  for (const TensorType& type : spec.outputs) ran.outputs.emplace_back(type);
  for (const TestTensor& t : ran.outputs) out.push_back(t.data());
  TestTensor workspace({DType::kF32, {(spec.workspace.v + 3) / 4}});
  ran.status = (*kernel)->Run(
      {.inputs = in.data(), .outputs = out.data(), .workspace = workspace.data(), .loaded = on_host.data()});
  ran.replayable = (*kernel)->replayable();
  EXPECT_TRUE(workspace.GuardIntact());
  for (const TestTensor& t : ran.outputs) EXPECT_TRUE(t.GuardIntact());
  return ran;
}

// By a library: the tests' own on the emulator, else cuDNN, where it attends on this machine's GPU.
bool HasLibrary() {
#ifdef TEMPER_GPU_EMULATED
  return true;
#else
  const auto found = ListGpus();
  return found.ok() && PrefersCudnn(found->gpus[0].major) && CudnnVersion().ok();
#endif
}
Ran RunByLibrary(const TwinRun& run, const Case& c, [[maybe_unused]] uint64_t order = 0) {
#ifdef TEMPER_GPU_EMULATED
  CountedAttention library;
  Ran ran = RunLoaded(run, *MakeEmulatedGpuKernels({.order = order}, nullptr, &library));
  std::vector<int64_t> planned;
  for (const PackedShape& shape : library.shapes) planned.push_back(shape.documents);
  EXPECT_EQ(planned, c.planned) << c.name;
  EXPECT_EQ(library.runs, c.runs) << c.name;
#else
  Ran ran = RunLoaded(run, *GpusUnderTest().front().table);
#endif
  EXPECT_TRUE(ran.status.ok()) << c.name << ": " << ran.status.message();
  EXPECT_FALSE(ran.replayable) << c.name;
  return ran;
}

TEST(GpuCudnn, AttendsAsTheScalarTwin) {
  if (!HasLibrary()) GTEST_SKIP() << "attention is not cuDNN's here";
  for (const Case& c : Cases()) {
    const Scene s(c);
    const TestTensors want = RunReference(s.forward());
    TestTensors absolute;
    for (const TestTensor& t : s.inputs) absolute.push_back(t.Copy());
    absolute[2] = Absolute(s.inputs[2]);
    const TestTensors magnitude = RunReference({Op::kAttention, s.attributes, &absolute});  // sums of p |v|
    const double u = UnitRoundoff(DType::kBF16), p_error = ProbabilityError(c.shape(), s.inputs[0], s.inputs[1]);
    const Ran got = RunByLibrary(s.forward(), c);
    ExpectNear(
        got.outputs[0], want[0], 2.02 * u,
        [&](int64_t i) { return 1.02 * (2 * p_error + 1.01 * u + 1e-6) * magnitude[0].Get(i) + 1e-37; },
        std::string(c.name) + " o");
    ExpectNear(
        got.outputs[1], want[1], 4 * UnitRoundoff(DType::kF32), [&](int64_t) { return p_error; },
        std::string(c.name) + " lse");
  }
}

TEST(GpuCudnn, GivesTheGradientsOfTheScalarTwin) {
  if (!HasLibrary()) GTEST_SKIP() << "attention is not cuDNN's here";
  for (const Case& c : Cases()) {
    const Scene s(c);
    const TestTensors inputs = s.InputsOfBackward();
    const TwinRun run{Op::kAttentionBackward, s.attributes, &inputs};
    const TestTensors want = RunReference(run);
    const BackwardBounds bounds = BoundsOf(
        c.shape(), inputs, [&](int64_t t) { return std::pair(static_cast<int64_t>(s.inputs[3].Get(t)), t + 1); });
    const std::vector<double>* const bound[] = {&bounds.d_q, &bounds.d_k, &bounds.d_v};
    const Ran got = RunByLibrary(run, c);
    // Where heads share keys, what each adds is rounded to bf16 before the sum: no more than d_s and p were.
    const double parts = c.heads == c.kv_heads ? 1 : 2;
    for (size_t o = 0; o < 3; ++o) {
      ExpectNear(
          got.outputs[o], want[o], 2.02 * UnitRoundoff(DType::kBF16),
          [&](int64_t i) { return 1.02 * parts * (*bound[o])[static_cast<size_t>(i)] + 1e-30; },
          fmt::format("{} output {}", c.name, o));
    }
    const Ran again = RunByLibrary(run, c, 7);
    for (size_t o = 0; o < 3; ++o) EXPECT_TRUE(again.outputs[o].SameBits(got.outputs[o])) << c.name;
  }
}

#ifdef TEMPER_GPU_EMULATED
TEST(GpuCudnn, LeavesToOurKernelsWhatItHasNoPlanFor) {
  struct Left {
    Case of;
    bool loaded;
    size_t asked;
  };
  const std::vector<Left> cases = {
      {{"more documents than any plan has", std::vector<int64_t>(66, 2), 132, 1, 1, 16, {}, 0}, true, 0},
      {{"documents that the host does not know", {20, 12}, 32, 2, 1, 16, {}, 0}, false, 0},
      {{"documents of one token alone", std::vector<int64_t>(9, 1), 9, 2, 1, 16, {}, 0}, true, 0},
      {{"heads that no engine takes", {20, 12}, 32, 2, 1, 48, {}, 0}, true, 1},
      {{"a plan that wants more scratch than there is", {20, 12}, 32, 2, 1, 112, {}, 0}, true, 1},
      {{"heads that are no multiple of 16", {20, 12}, 32, 2, 1, 24, {}, 0}, true, 0},
  };
  for (const Left& left : cases) {
    const Scene s(left.of);
    const TestTensors inputs = s.InputsOfBackward();
    for (const TwinRun& run : {s.forward(), TwinRun{Op::kAttentionBackward, s.attributes, &inputs}}) {
      CountedAttention library;
      testing::internal::CaptureStderr();
      const Ran got = RunLoaded(run, *MakeEmulatedGpuKernels({}, nullptr, &library), left.loaded);
      const std::string said = testing::internal::GetCapturedStderr();
      EXPECT_EQ(said.find("our own kernels, which are slower on this GPU: cuDNN 9.26.0") != std::string::npos,
                left.asked > 0)
          << left.of.name << ": " << said;
      ASSERT_TRUE(got.status.ok()) << left.of.name << ": " << got.status.message();
      EXPECT_EQ(library.shapes.size(), left.asked) << left.of.name;
      EXPECT_EQ(library.runs, 0) << left.of.name;
      const Ran own = RunLoaded(run, *MakeEmulatedGpuKernels({}));
      for (size_t o = 0; o < own.outputs.size(); ++o) {
        EXPECT_TRUE(got.outputs[o].SameBits(own.outputs[o])) << left.of.name << " output " << o;
      }
    }
  }
}

TEST(GpuCudnn, DocumentsThatDoNotNameTheirFirstTokenAreRefusedBeforeTheLibrarySeesThem) {
  const Case c{"", {8}, 8, 1, 1, 16, {}, 0};
  for (const auto& [at, start] : {std::pair(0, -1), std::pair(3, 7), std::pair(5, 2)}) {
    Scene s(c);
    s.inputs[3].Set(at, start);
    CountedAttention library;
    const Ran got = RunLoaded(s.forward(), *MakeEmulatedGpuKernels({}, nullptr, &library));
    EXPECT_EQ(library.runs, 0);
    EXPECT_FALSE(got.status.ok()) << at << " " << start;
  }
}

TEST(GpuCudnn, ARunThatFailsIsAnErrorThatNamesTheLibrary) {
  const Scene s({"", {8}, 8, 7, 7, 16, {}, 0});
  CountedAttention library;
  const Ran got = RunLoaded(s.forward(), *MakeEmulatedGpuKernels({}, nullptr, &library));
  EXPECT_NE(got.status.message().find("cuDNN 9.26.0, a run: status 5000, said the library for tests"),
            std::string::npos)
      << got.status.message();
}

#endif

TEST(GpuCudnn, ALibraryThatIsMissingOrTooOldIsToldInALine) {
  const auto missing = CudnnVersion("libcudnn.so.none");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("libcudnn.so.none could not be loaded"), std::string::npos);
  EXPECT_NE(missing.status().message().find("install cuDNN 9.18 or newer"), std::string::npos);
  ASSERT_TRUE(CudnnVersion(kTestCudnn).ok());
  EXPECT_EQ(*CudnnVersion(kTestCudnn), "cuDNN 9.26.0");
  setenv("TEST_CUDNN_VERSION", "91701", 1);
  const auto old =
      CudnnVersion(std::string(kBuildFolder) + "/test_cudnn/../test_cudnn/libtest_cudnn.so.9");  // not loaded before
  unsetenv("TEST_CUDNN_VERSION");
  ASSERT_FALSE(old.ok());
  EXPECT_NE(old.status().message().find("cuDNN 9.17.1: 9.18 or newer is needed"), std::string::npos)
      << old.status().message();
}

// What cuDNN 9.26 itself says of such a GPU's properties (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION): all that it
// reads.
std::string DeviceOf(int version, int multiprocessors, int64_t memory) {
  return fmt::format(
      R"({{"deviceVer":{},"driverVer":13000,"cudaDeviceId":0,"deviceName":"NVIDIA","multiProcessorCount":{},)"
      R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
      R"("smClockRateKHz":1980000,"memClockRateKHz":2619000,"memoryBusWidth":8192,"l2CacheSize":52428800,)"
      R"("warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
      R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"pciDeviceId":0,"maxCtasPerSM":32,)"
      R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":{},)"
      R"("oversizedSharedMemoryPerBlock":0}})",
      version, multiprocessors, version < 900 ? 166912 : 232448, memory);
}

TEST(GpuCudnn, CudnnItselfHasPlansForWhatIsAskedOfIt) {
#ifdef TEMPER_SANITIZED
  GTEST_SKIP() << "what cuDNN does with its memory is not ours to judge";
#endif
  const auto version = CudnnVersion();
  if (!version.ok()) GTEST_SKIP() << version.status().message();
  // What a plan is made of is loaded by the driver. Where there is none, by one that runs nothing; it is found by name.
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const std::string driver = std::string(kBuildFolder) + "/test_cuda_driver/libcuda.so.1";
    ASSERT_NE(dlopen(driver.c_str(), RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  }
  const auto plan = [&](int device, const PackedShape& shape) {
    auto planner = MakeCudnnPlanner(DeviceOf(device, device < 900 ? 108 : 148, int64_t{180} << 30));
    if (!planner.ok()) return planner.status();
    const auto pass = (*planner)->Make(shape);
    return pass.ok() ? OkStatus() : pass.status();
  };
  // As for a piece of rows of 2048, with Llama's heads. Kernels are compiled: seconds for each.
  PackedShape shape = {.documents = 64, .longest = 2048, .heads = 32, .kv_heads = 8, .head_dim = 128, .scale = 0.1f};
  for (const bool backward : {false, true}) {
    shape.backward = backward;
    const Status status = plan(1000, shape);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // Why it is asked on no others.
  for (const int device : {800, 900}) {
    EXPECT_EQ(plan(device, shape).code(), StatusCode::kUnsupported) << device;
    EXPECT_FALSE(PrefersCudnn(device / 100));
  }
  EXPECT_TRUE(PrefersCudnn(10));
}

}  // namespace
}  // namespace temper::gpu::cudnn_attention_test
