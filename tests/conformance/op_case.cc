#include "op_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/reference/reference.h"
#include "backend/cpu/scalar_fallback.h"
#include "backend/gpu/gpus_under_test.h"
#include "base/philox.h"

#ifdef TEMPER_ADDRESS_SANITIZED
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace temper {
namespace {

constexpr size_t kGuard = 128;
constexpr std::byte kGuardByte{0xC3};
// 0xFF in every byte is a NaN in all floating formats and -1 in the integers.
constexpr std::byte kPoison{0xFF};

template <class T>
T& At(std::byte* data, int64_t i) {
  return reinterpret_cast<T*>(data)[i];
}
template <class T>
const T& At(const std::byte* data, int64_t i) {
  return reinterpret_cast<const T*>(data)[i];
}

// The input that output 0 may overwrite, or -1.
int InPlaceInput(const OpCase& op_case) {
  return OverwritableInput(op_case.op, op_case.attributes, static_cast<int>(op_case.inputs.size()), 0);
}

}  // namespace

Tensor::Tensor(const TensorType& type) : type_(type), bytes_(type.bytes().v) {
  memory_ = std::make_unique<std::byte[]>(bytes_ + 2 * kGuard + 64);
  const size_t misaligned = reinterpret_cast<uintptr_t>(memory_.get()) % 64;
  begin_ = kGuard + (64 - misaligned) % 64;
  std::memset(memory_.get(), static_cast<int>(kGuardByte), bytes_ + 2 * kGuard + 64);
  std::memset(data(), static_cast<int>(kPoison), bytes_);
  ASAN_POISON_MEMORY_REGION(data() - kGuard, kGuard);
  ASAN_POISON_MEMORY_REGION(data() + bytes_, kGuard);
}

Tensor::Tensor(const Tensor& other) : Tensor(other.type_) {
  if (bytes_ > 0) std::memcpy(data(), other.data(), bytes_);
}

Tensor::~Tensor() {
  if (memory_ != nullptr) ASAN_UNPOISON_MEMORY_REGION(data() - kGuard, bytes_ + 2 * kGuard);
}

Tensor Tensor::Random(const TensorType& type, uint64_t seed, double scale) {
  Tensor t(type);
  for (int64_t i = 0; i < type.shape.elements(); ++i) {
    t.Set(i, scale * (2.0 * UniformAt({.seed = seed, .name_hash = 0x5EED}, i) - 1.0));
  }
  return t;
}

Tensor Tensor::Of(const TensorType& type, const std::vector<double>& values) {
  Tensor t(type);
  for (size_t i = 0; i < values.size(); ++i) t.Set(static_cast<int64_t>(i), values[i]);
  return t;
}

Tensor Tensor::Ints(const std::vector<int32_t>& values) {
  Tensor t({DType::kI32, {static_cast<int64_t>(values.size())}});
  for (size_t i = 0; i < values.size(); ++i) t.Set(static_cast<int64_t>(i), values[i]);
  return t;
}

double Tensor::operator[](int64_t i) const {
  switch (type_.dtype) {
    case DType::kF32:
      return At<float>(data(), i);
    case DType::kBF16:
      return ToFloat(At<bf16>(data(), i));
    case DType::kF16:
      return ToFloat(At<f16>(data(), i));
    case DType::kF64:
      return At<double>(data(), i);
    case DType::kI32:
      return At<int32_t>(data(), i);
    case DType::kI64:
      return static_cast<double>(At<int64_t>(data(), i));
    case DType::kU8:
      return At<uint8_t>(data(), i);
  }
  return 0;
}

void Tensor::Set(int64_t i, double x) {
  switch (type_.dtype) {
    case DType::kF32:
      At<float>(data(), i) = static_cast<float>(x);
      return;
    case DType::kBF16:
      At<bf16>(data(), i) = ToBF16(static_cast<float>(x));
      return;
    case DType::kF16:
      At<f16>(data(), i) = ToF16(static_cast<float>(x));
      return;
    case DType::kF64:
      At<double>(data(), i) = x;
      return;
    case DType::kI32:
      At<int32_t>(data(), i) = static_cast<int32_t>(x);
      return;
    case DType::kI64:
      At<int64_t>(data(), i) = static_cast<int64_t>(x);
      return;
    case DType::kU8:
      At<uint8_t>(data(), i) = static_cast<uint8_t>(static_cast<int64_t>(x));
      return;
  }
}

bool Tensor::GuardsIntact() const {
  ASAN_UNPOISON_MEMORY_REGION(data() - kGuard, bytes_ + 2 * kGuard);
  const auto intact = [](const std::byte* p) {
    return std::all_of(p, p + kGuard, [](std::byte b) { return b == kGuardByte; });
  };
  const bool good = intact(data() - kGuard) && intact(data() + bytes_);
  ASAN_POISON_MEMORY_REGION(data() - kGuard, kGuard);
  ASAN_POISON_MEMORY_REGION(data() + bytes_, kGuard);
  return good;
}

bool Tensor::SameBytes(const Tensor& other) const {
  return bytes_ == other.bytes_ && (bytes_ == 0 || std::memcmp(data(), other.data(), bytes_) == 0);
}

KernelSpec SpecOf(const OpCase& op_case, int threads) {
  const OpRule& rule = RuleOf(op_case.op);
  KernelSpec spec{.op = op_case.op, .attributes = op_case.attributes, .threads = threads};
  for (const Tensor& input : op_case.inputs) spec.inputs.push_back(input.type());
  Result<Types> types = rule.infer(spec.inputs, spec.attributes);
  TEMPER_CHECK(types.ok()) << types.status().message();
  spec.outputs = *types;
  if (rule.workspace != nullptr) spec.workspace = rule.workspace(spec.inputs, spec.outputs, spec.attributes, threads);
  return spec;
}

std::vector<Tensor> RunOn(KernelTable& kernels, const OpCase& op_case, int threads, bool in_place) {
  const KernelSpec spec = SpecOf(op_case, threads);
  std::vector<Tensor> inputs = op_case.inputs;
  std::vector<Tensor> outputs;
  for (const TensorType& type : spec.outputs) outputs.emplace_back(type);
  Tensor workspace({DType::kBF16, {spec.workspace.v / 2}});

  std::vector<std::byte*> in, out;
  for (Tensor& t : inputs) in.push_back(t.data());
  for (Tensor& t : outputs) out.push_back(t.data());
  if (in_place) {
    const auto target = static_cast<size_t>(InPlaceInput(op_case));
    outputs[0] = Tensor(inputs[target]);
    in[target] = out[0] = outputs[0].data();
  }
  auto kernel = kernels.Make(spec);
  TEMPER_CHECK(kernel.ok()) << kernel.status().message();
  const Status status = (*kernel)->Run({.inputs = in.data(),
                                        .outputs = out.data(),
                                        .workspace = workspace.data(),
                                        .rng_name_hash = op_case.rng_name_hash});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(workspace.GuardsIntact()) << "workspace overrun";
  for (size_t k = 0; k < outputs.size(); ++k) EXPECT_TRUE(outputs[k].GuardsIntact()) << "output " << k << " overrun";
  for (size_t k = 0; k < inputs.size(); ++k) {
    EXPECT_TRUE(inputs[k].SameBytes(op_case.inputs[k])) << "input " << k << " was written";
  }
  return outputs;
}

namespace {

std::string Describe(const OpCase& op_case) {
  std::string text(ToString(op_case.op));
  for (const Tensor& t : op_case.inputs) text += " " + t.type().ToString();
  return text + " " + op_case.attributes.ToString();
}

void ExpectClose(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const Bound& bound) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    const double storing = 2 * UnitRoundoff(want[k].type().dtype);
    int64_t bad = 0;
    for (int64_t i = 0; i < want[k].type().shape.elements() && bad < 3; ++i) {
      const double w = want[k][i], g = got[k][i];
      if (std::isnan(w) && std::isnan(g)) continue;
      if (g == w) continue;  // infinities among them
      const double allowed = bound(static_cast<int>(k), i) + storing * std::fabs(w);
      if (!(std::fabs(g - w) <= allowed)) {
        ++bad;
        ADD_FAILURE() << "output " << k << " element " << i << ": " << g << ", twin " << w << ", off by "
                      << std::fabs(g - w) << " of allowed " << allowed;
      }
    }
  }
}

// The GPU's kernel, if there is one: agrees with the twin; gives the same bits when repeated, and in place.
void ExpectGpuConforms(const OpCase& op_case, const std::vector<Tensor>& want, const Bound& bound) {
  for (const GpuTables& gpu : GpusUnderTest()) {
    SCOPED_TRACE(Describe(op_case) + " on " + gpu.table->name());
    const auto made = gpu.table->Make(SpecOf(op_case, 1));
    if (!made.ok()) {
      // An op or a dtype only for the host; a vendor's library must have everything that a test requests.
      EXPECT_EQ(made.status().code(), StatusCode::kUnsupported) << made.status().message();
      EXPECT_EQ(made.status().message().find(" has no product "), std::string::npos) << made.status().message();
      continue;
    }
    const std::vector<Tensor> got = RunOn(*gpu.table, op_case, 1);
    ExpectClose(got, want, bound);
    const std::vector<Tensor> again = RunOn(*gpu.again, op_case, 1);
    for (size_t k = 0; k < got.size(); ++k) {
      EXPECT_TRUE(again[k].SameBytes(got[k])) << "output " << k << " differs when repeated";
    }
    const int target = RuleOf(op_case.op).in_place_input;
    if (target >= 0 && target < static_cast<int>(op_case.inputs.size()) &&
        op_case.inputs[static_cast<size_t>(target)].type() == got[0].type()) {
      const std::vector<Tensor> in_place = RunOn(*gpu.again, op_case, 1, /*in_place=*/true);
      for (size_t k = 0; k < got.size(); ++k) {
        EXPECT_TRUE(in_place[k].SameBytes(got[k])) << "output " << k << " differs in place";
      }
    }
  }
}

}  // namespace

void ExpectConforms(const OpCase& op_case, const Bound& bound) {
  const std::vector<Tensor> want = RunOn(ReferenceKernels(), op_case, 1);
  // A bound may sum over a row for each of its elements, so it is computed once for all tables.
  constexpr double kUnknown = -1;
  std::vector<std::vector<double>> bounds;
  for (const Tensor& t : want) bounds.emplace_back(t.type().shape.elements(), kUnknown);
  const Bound once = [&](int k, int64_t i) {
    double& known = bounds[static_cast<size_t>(k)][static_cast<size_t>(i)];
    if (known == kUnknown) known = bound(k, i);
    return known;
  };
  ExpectGpuConforms(op_case, want, once);
  for (Isa isa : RunnableIsas()) {
    SCOPED_TRACE(Describe(op_case) + " on " + std::string(ToString(isa)));
    const auto kernels = MakeCpuKernels({.threads = 3, .isa = isa});
    if (isa != Isa::kScalar && !op_case.may_lack_fast_kernel) {
      EXPECT_NE(MakeFastKernel(SpecOf(op_case, 1), isa), nullptr) << "only the twin was tested";
    }
    const KernelSpec spec = SpecOf(op_case, 1);
    EXPECT_EQ(WhyScalar(spec, isa).has_value(), MakeFastKernel(spec, isa) == nullptr);
    const std::vector<Tensor> got = RunOn(*kernels, op_case, 1);
    ExpectClose(got, want, once);
    for (int threads : {2, 3}) {
      const std::vector<Tensor> again = RunOn(*kernels, op_case, threads);
      for (size_t k = 0; k < got.size(); ++k) {
        EXPECT_TRUE(again[k].SameBytes(got[k])) << "output " << k << " differs on " << threads << " threads";
      }
    }
    const int target = InPlaceInput(op_case);
    if (target >= 0 && op_case.inputs[static_cast<size_t>(target)].type() == got[0].type()) {
      const std::vector<Tensor> in_place = RunOn(*kernels, op_case, 2, /*in_place=*/true);
      for (size_t k = 0; k < got.size(); ++k) {
        EXPECT_TRUE(in_place[k].SameBytes(got[k])) << "output " << k << " differs in place";
      }
    }
  }
}

}  // namespace temper
