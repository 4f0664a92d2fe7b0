// Running a kernel allocates nothing: malloc and its kin are counted while each compute-bound kernel runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "backend/cpu/kernel_twin.h"
#include "graph/named_ops.h"
#include "graph/ops/attention_cache.h"

#if defined(__GLIBC__) && !defined(TEMPER_SANITIZED)
#define TEMPER_COUNTS_ALLOCATIONS 1

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// glibc's own, under the names that allocators which stand in for malloc may call.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t n, size_t size);
void* __libc_realloc(void* p, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(p, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
}
#endif

namespace temper::allocation_test {
namespace {

TestTensor Indices(int64_t n, int64_t (*value)(int64_t)) {
  TestTensor t({DType::kI32, {n}});
  for (int64_t i = 0; i < n; ++i) t.Set(i, static_cast<double>(value(i)));
  return t;
}

// The other member of a group of two gives what this one does.
class Echo final : public Exchange {
 public:
  int index() const override { return 0; }
  int size() const override { return 2; }
  Status AllGather(std::span<const float> mine, std::span<float> all) override {
    std::copy(mine.begin(), mine.end(), all.begin());
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()));
    return OkStatus();
  }
};

TEST(ComputeBoundKernels, AllocateNothingWhenRun) {
#ifndef TEMPER_COUNTS_ALLOCATIONS
  GTEST_SKIP() << "a sanitizer has malloc, or this is not glibc";
#else
  constexpr int64_t T = 70, D = 64, V = 90;
  const Attributes heads = {{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"scale", 0.25}};
  const auto matrix = [](int64_t rows, int64_t columns) { return RandomTensor({DType::kBF16, {rows, columns}}, 1); };
  struct Case {
    Op op;
    Attributes attributes;
    TestTensors inputs;
  };
  std::vector<Case> cases;
  const auto add = [&](Op op, Attributes attributes, auto... inputs) {
    cases.push_back({op, std::move(attributes), {}});
    (cases.back().inputs.push_back(std::move(inputs)), ...);
  };
  add(Op::kLinear, {}, matrix(T, D), matrix(V, D));
  add(Op::kLinear, {}, matrix(1, D), matrix(V, D));
  add(Op::kLinearDx, {}, matrix(T, V), matrix(V, D));
  add(Op::kLinearDw, {}, matrix(T, V), matrix(T, D));
  add(Op::kLinearCrossEntropy, {{"grad_x", int64_t{1}}, {"grad_w", int64_t{1}}, {"chunk", int64_t{20}}}, matrix(T, D),
      matrix(V, D), Indices(T, [](int64_t i) { return i - 1; }));
  add(Op::kLinearCrossEntropy,
      {{"grad_x", int64_t{1}},
       {"chunk", int64_t{20}},
       {"axes", std::string("tp")},
       {"ranks", int64_t{2}},
       {"whole", 2 * V}},
      matrix(T, D), matrix(V, D), Indices(T, [](int64_t i) { return 2 * i - 1; }));
  const auto starts = [] { return Indices(T, [](int64_t i) { return i < 30 ? int64_t{0} : int64_t{30}; }); };
  add(Op::kAttention, heads, matrix(T, D), matrix(T, D / 2), matrix(T, D / 2), starts());
  add(Op::kAttentionBackward, heads, matrix(T, D), matrix(T, D), matrix(T, D / 2), matrix(T, D / 2), matrix(T, D),
      RandomTensor({DType::kF32, {T, 4}}, 1), starts());
  // Three tokens behind 20 others, in the second of two pages.
  Attributes cached = heads;
  cached.Set("page", kCachePage);
  TestTensor pages({DType::kI32, {1, 2}});
  for (int64_t i = 0; i < 2; ++i) pages.Set(i, static_cast<double>(1 - i));
  add(Op::kAttentionCached, cached, matrix(3, D), matrix(3, D / 2), matrix(3, D / 2),
      RandomTensor(KeyCacheType(DType::kBF16, 2 * kCachePage, 2, D / 4), 1),
      RandomTensor(ValueCacheType(DType::kBF16, 2 * kCachePage, 2, D / 4), 1),
      Indices(3, [](int64_t) { return int64_t{0}; }), Indices(3, [](int64_t i) { return 20 + i; }), std::move(pages));
  Attributes step = heads;
  for (const auto& [key, value] :
       {std::pair("row", 2 * T), std::pair("ranks", int64_t{2}), std::pair("index", int64_t{1}),
        std::pair("origin", int64_t{0}), std::pair("acc", int64_t{1})}) {
    step.Set(key, value);
  }
  const auto none = [] { return Indices(T, [](int64_t) { return int64_t{0}; }); };
  const auto sums = [](int64_t columns) { return RandomTensor({DType::kF32, {T, columns}}, 1); };
  add(Op::kAttentionStep, step, matrix(T, D), matrix(T, D / 2), matrix(T, D / 2), none(), sums(D), sums(4));
  add(Op::kAttentionStepBackward, step, matrix(T, D), matrix(T, D), matrix(T, D / 2), matrix(T, D / 2), matrix(T, D),
      sums(4), none(), sums(D));
  for (const Case& c : cases) {
    KernelSpec spec{.op = c.op, .attributes = c.attributes, .threads = 2};
    for (const TestTensor& t : c.inputs) spec.inputs.push_back(t.type());
    spec.outputs = *RuleOf(c.op).infer(spec.inputs, spec.attributes);
    spec.workspace = RuleOf(c.op).workspace(spec.inputs, spec.outputs, spec.attributes, 2);
    const CpuOptions options = {
        .threads = 2, .exchange = [](AxisSet) { return Result<std::unique_ptr<Exchange> >(std::make_unique<Echo>()); }};
    auto kernel = MakeCpuKernels(options)->Make(spec);
    ASSERT_TRUE(kernel.ok());
    TestTensors outputs;
    TestTensor workspace({DType::kF32, {spec.workspace.v / 4}});
    std::vector<std::byte*> in, out;
    for (const TestTensor& t : c.inputs) in.push_back(t.data());
    for (const TensorType& t : spec.outputs) outputs.emplace_back(t);
    for (const TestTensor& t : outputs) out.push_back(t.data());
    const KernelArgs args = {in.data(), out.data(), workspace.data()};
    ASSERT_TRUE((*kernel)->Run(args).ok());  // the first time starts the team's threads
    const int64_t before = allocations.load();
    const bool ok = (*kernel)->Run(args).ok();
    EXPECT_EQ(allocations.load() - before, 0) << ToString(c.op);
    EXPECT_TRUE(ok);
  }
#endif
}

#ifdef TEMPER_COUNTS_ALLOCATIONS
TEST(ComputeBoundKernels, AreCountedByACounterThatCounts) {
  const int64_t before = allocations.load();
  const std::unique_ptr<TestTensor> made = std::make_unique<TestTensor>(TensorType{DType::kF32, {100}});
  EXPECT_GE(allocations.load() - before, 2);
}
#endif

}  // namespace
}  // namespace temper::allocation_test
