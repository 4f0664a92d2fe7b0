// For tests: runs one instruction on a kernel table under hostile conditions, to compare a fast kernel with its scalar
// twin. Outputs and workspace are full of NaN before the run, every buffer ends in guard bytes that must survive, and
// the workspace is exactly as large as the op's rule says.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <typeinfo>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "tensor/quantise_for_test.h"

namespace temper {

// A tensor in memory of its own with a guard after it.
class TestTensor {
 public:
  explicit TestTensor(const TensorType& type) : type_(type) {
    const size_t size = static_cast<size_t>(type.bytes().v);
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, (size + kGuard + 63) / 64 * 64)));
    std::memset(data_.get(), 0xFF, size);  // NaN in every floating type, -1 in integers
    std::memset(data_.get() + size, kGuardByte, kGuard);
  }
  const TensorType& type() const { return type_; }
  std::byte* data() const { return data_.get(); }
  bool GuardIntact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (data_[static_cast<size_t>(type_.bytes().v) + i] != std::byte{kGuardByte}) return false;
    }
    return true;
  }
  double Get(int64_t i) const {
    if (type_.dtype == DType::kF32 && !type_.packed()) return reinterpret_cast<const float*>(data())[i];
    if (type_.packed()) {
      const int64_t n = type_.shape.columns();
      const PackedPanels panels(type_.layout, type_.shape.rows(), n);
      return ToFloat(*reinterpret_cast<const bf16*>(data() + panels.Offset(i / n, i % n)));
    }
    if (type_.dtype.quantised()) {
      const int64_t n = type_.shape.columns();
      return ToFloat(type_.dtype.Number(data() + i / n * type_.dtype.RowBytes(n), n, i % n));
    }
    switch (type_.dtype) {
      case DType::kBF16:
        return ToFloat(reinterpret_cast<const bf16*>(data())[i]);
      case DType::kI32:
        return reinterpret_cast<const int32_t*>(data())[i];
      default:
        ADD_FAILURE() << type_.ToString();
        return 0;
    }
  }
  void Set(int64_t i, double x) {
    switch (type_.dtype) {
      case DType::kF32:
        reinterpret_cast<float*>(data())[i] = static_cast<float>(x);
        return;
      case DType::kBF16:
        reinterpret_cast<bf16*>(data())[i] = ToBF16(static_cast<float>(x));
        return;
      case DType::kI32:
        reinterpret_cast<int32_t*>(data())[i] = static_cast<int32_t>(x);
        return;
      default:
        ADD_FAILURE() << type_.ToString();
    }
  }
  TestTensor Copy() const {
    TestTensor copy(type_);
    std::memcpy(copy.data(), data(), static_cast<size_t>(type_.bytes().v));
    return copy;
  }
  bool SameBits(const TestTensor& o) const {
    return type_ == o.type_ && std::memcmp(data(), o.data(), static_cast<size_t>(type_.bytes().v)) == 0;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  static constexpr size_t kGuard = 256;
  static constexpr int kGuardByte = 0xA5;
  TensorType type_;
  std::unique_ptr<std::byte[], Free> data_;
};

using TestTensors = std::vector<TestTensor>;

inline TestTensor RandomTensor(const TensorType& type, uint32_t seed, double spread = 1.0) {
  TestTensor t(type);
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, spread);
  for (int64_t i = 0; i < type.shape.elements(); ++i) t.Set(i, normal(engine));
  return t;
}

// The bf16 matrix `t` in panels.
inline TestTensor PackedAs(ElementLayout layout, const TestTensor& t) {
  TensorType type = t.type();
  type.layout = layout;
  TestTensor packed(type);
  const PackedPanels panels(layout, type.shape[0], type.shape[1]);
  panels.PackRows(0, type.shape[0], reinterpret_cast<const uint16_t*>(t.data()), packed.data());
  return packed;
}

inline TestTensor Absolute(const TestTensor& t) {
  TestTensor a({t.type().dtype.compute(), t.type().shape});
  for (int64_t i = 0; i < t.type().shape.elements(); ++i) a.Set(i, std::fabs(t.Get(i)));
  return a;
}

struct TwinRun {
  Op op;
  Attributes attributes;
  const TestTensors* inputs;
  // in_place[i] = j: output i overwrites (a copy of) input j.
  std::vector<std::pair<int, int>> in_place = {};
  int runs = 1;  // runs on the same buffers; later ones find the values of earlier ones
};

// As RandomTensor, in a quantised format.
inline TestTensor RandomQuantised(ElementFormat format, const Shape& shape, uint32_t seed, double spread = 1.0) {
  const TestTensor numbers = RandomTensor({DType::kF32, shape}, seed, spread);
  const std::span x(reinterpret_cast<const float*>(numbers.data()), static_cast<size_t>(shape.elements()));
  const std::vector<std::byte> bytes = Quantised(format, x, shape, {0, 0}, shape);
  TestTensor t({format, shape});
  std::copy(bytes.begin(), bytes.end(), t.data());
  return t;
}

// The numbers of `t` in bf16: of a quantised format, exactly.
inline TestTensor InBf16(const TestTensor& t) {
  TestTensor values({DType::kBF16, t.type().shape});
  for (int64_t i = 0; i < t.type().shape.elements(); ++i) values.Set(i, t.Get(i));
  return values;
}

// Whether a kernel is one of reference/.
inline bool IsReference(const Kernel& kernel) {
  const auto twin = ReferenceKernels().Make({.op = Op::kAdd});
  const Kernel& scalar = **twin;
  return typeid(kernel) == typeid(scalar);
}

// The outputs of one run. `table` makes the kernel, which must be a fast one or must not be, with `threads` threads and
// the rule's workspace.
inline TestTensors RunKernel(const TwinRun& run, KernelTable& table, bool fast, int threads) {
  const OpRule& rule = RuleOf(run.op);
  KernelSpec spec{.op = run.op, .attributes = run.attributes, .threads = threads};
  for (const TestTensor& t : *run.inputs) spec.inputs.push_back(t.type());
  auto types = rule.infer(spec.inputs, spec.attributes);
  EXPECT_TRUE(types.ok()) << types.status().message();
  if (!types.ok()) return {};
  spec.outputs = *types;
  if (rule.workspace != nullptr) spec.workspace = rule.workspace(spec.inputs, spec.outputs, spec.attributes, threads);
  auto kernel = table.Make(spec);
  EXPECT_TRUE(kernel.ok()) << kernel.status().message();
  if (!kernel.ok()) return {};
  EXPECT_EQ(IsReference(**kernel), !fast) << ToString(run.op) << " has no fast kernel";

  TestTensors inputs, outputs;
  for (const TestTensor& t : *run.inputs) inputs.push_back(t.Copy());
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    TestTensor out(spec.outputs[i]);
    for (const auto& [o, in] : run.in_place) {
      if (o == static_cast<int>(i)) out = inputs[static_cast<size_t>(in)].Copy();
    }
    outputs.push_back(std::move(out));
  }
  std::vector<std::byte*> in, out;
  for (const TestTensor& t : inputs) in.push_back(t.data());
  for (const TestTensor& t : outputs) out.push_back(t.data());
  for (const auto& [o, i] : run.in_place) in[static_cast<size_t>(i)] = out[static_cast<size_t>(o)];
  TestTensor workspace({DType::kF32, {(spec.workspace.v + 3) / 4}});
  for (int i = 0; i < run.runs; ++i) {
    const Status status = (*kernel)->Run({in.data(), out.data(), workspace.data()});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(workspace.GuardIntact()) << "workspace of " << spec.workspace.v << " bytes overrun";
  for (const TestTensor& t : outputs) EXPECT_TRUE(t.GuardIntact()) << "output " << t.type().ToString() << " overrun";
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(inputs[i].SameBits((*run.inputs)[i])) << "input " << i << " was written";
  }
  return outputs;
}

inline TestTensors RunReference(const TwinRun& run) {
  return RunKernel(run, ReferenceKernels(), /*fast=*/false, 1);
}

inline TestTensors RunFast(const TwinRun& run, Isa isa, int threads) {
  const auto table = MakeCpuKernels({.threads = threads, .isa = isa});
  return RunKernel(run, *table, isa > Isa::kScalar, threads);
}

// |got - want| <= relative * |want| + absolute(i) for each element; NaN fails. Reports the worst element.
template <class Absolute>
void ExpectNear(const TestTensor& got, const TestTensor& want, double relative, const Absolute& absolute,
                const std::string& what) {
  ASSERT_EQ(got.type(), want.type()) << what;
  double worst = 0;
  int64_t at = -1;
  for (int64_t i = 0; i < got.type().shape.elements(); ++i) {
    const double error = std::fabs(got.Get(i) - want.Get(i));
    const double allowed = relative * std::fabs(want.Get(i)) + absolute(i);
    const double ratio = error == 0 ? 0 : error / allowed;
    if (!(ratio <= worst)) {
      worst = ratio;
      at = i;
      if (std::isnan(ratio)) break;
    }
  }
  EXPECT_LE(worst, 1.0) << what << ": element " << at << " of " << got.type().ToString() << " is " << got.Get(at)
                        << ", should be " << want.Get(at);
}

}  // namespace temper
