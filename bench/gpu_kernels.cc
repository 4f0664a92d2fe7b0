// How close do kernels on a GPU come to its limits? Memory-bound ones and the thin products of adapters to the rate of
// a copy, attention to the peak of matrix products, both measured in this run. Bytes are those of the ops' cost rules,
// each operand once; operands are random and larger than any cache. One line each, the slowest ratio last.
#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "backend/gpu/gpu_device.h"
#include "base/philox.h"
#include "bench/memory_cases.h"
#include "device/enqueued_seconds.h"
#include "graph/named_ops.h"
#include "run/processor.h"
#include "tensor/view.h"

namespace temper::bench {
namespace {

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}
void Must(const Status& status) {
  TEMPER_CHECK(status.ok()) << status.message();
}

// An instruction with random operands in the device's memory.
class DeviceInstruction {
 public:
  DeviceInstruction(Device& device, Op op, const Types& inputs, const Attributes& attributes)
      : device_(device), spec_{.op = op, .inputs = inputs, .attributes = attributes} {
    spec_.outputs = Must(RuleOf(op).infer(spec_.inputs, spec_.attributes));
    if (const auto workspace = RuleOf(op).workspace) {
      spec_.workspace = workspace(spec_.inputs, spec_.outputs, spec_.attributes, spec_.threads);
    }
    kernel_ = Must(device_.kernels().Make(spec_));
    for (const TensorType& t : spec_.inputs) in_.push_back(Filled(t));
    for (const TensorType& t : spec_.outputs) out_.push_back(Allocate(t.bytes()));
    workspace_ = Allocate(spec_.workspace);
  }
  ~DeviceInstruction() {
    Must(device_.stream().Synchronize());
    for (const auto memory : memory_) device_.Release(memory);
  }
  DeviceInstruction(const DeviceInstruction&) = delete;

  template <class T, class F>
  void Set(size_t input, const F& f) {
    std::vector<T> host(static_cast<size_t>(spec_.inputs[input].shape.elements()));
    for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<T>(f(static_cast<int64_t>(i)));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(host));
    Must(device_.stream().CopyToDevice(bytes, in_[input]));
    Must(device_.stream().Synchronize());
    loaded_[input].assign(bytes.begin(), bytes.end());
  }
  void InPlace(int output, int input) { out_[static_cast<size_t>(output)] = in_[static_cast<size_t>(input)]; }
  void TakeOutput(size_t output, const DeviceInstruction& from, size_t input) { in_[input] = from.out_[output]; }
  double Seconds() {
    std::vector<const std::byte*> loaded(in_.size(), nullptr);  // as in a run, where the host has loaded them
    for (const auto& [input, bytes] : loaded_) loaded[input] = bytes.data();
    const auto run = [&] {
      return kernel_->Run(
          {.inputs = in_.data(), .outputs = out_.data(), .workspace = workspace_, .loaded = loaded.data()});
    };
    return Must(EnqueuedSeconds(device_, run)).v;
  }
  Cost cost() const { return RuleOf(spec_.op).cost(spec_.inputs, spec_.outputs, spec_.attributes); }

 private:
  std::byte* Allocate(Bytes size) {
    memory_.push_back(Must(device_.Allocate(std::max(size, Bytes{1}))));
    return memory_.back().data();
  }
  std::byte* Filled(const TensorType& type) {
    std::byte* const at = Allocate(type.bytes());
    if (type.dtype != DType::kF32 && type.dtype != DType::kBF16) return at;  // zeros, until set
    // Repeats a piece of random numbers of an odd length.
    const auto bytes = static_cast<size_t>(type.bytes().v);
    std::vector<std::byte> host(bytes);
    DispatchFloat(type.dtype, [&]<class T>() {
      const std::span<T> x = View{host.data(), type}.as<T>();
      const size_t drawn = std::min<size_t>(x.size(), 100003);
      for (size_t i = 0; i < drawn; ++i) x[i] = FromFloat<T>(NormalAt({.seed = 1}, i));
      for (size_t i = drawn; i < x.size(); ++i) x[i] = x[i - drawn];
    });
    Must(device_.stream().CopyToDevice(host, at));
    Must(device_.stream().Synchronize());
    return at;
  }

  Device& device_;
  KernelSpec spec_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::span<std::byte>> memory_;
  std::vector<std::byte*> in_, out_;
  std::map<size_t, std::vector<std::byte>> loaded_;  // by input
  std::byte* workspace_ = nullptr;
};

constexpr int64_t kT = 16384, kD = 4096;  // a micro-batch of an 8B model; 128 MiB of bf16 per operand

void MemoryBound(Device& device, double copy) {
  double least = 1e9;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const MemoryCase& c : MemoryCases(dtype, kT, kD)) {
      DeviceInstruction instruction(device, c.op, c.inputs, c.attributes);
      if (c.output >= 0) instruction.InPlace(c.output, c.input);
      if (c.op == Op::kAdamw) {
        for (const auto& [output, input] : {std::pair(0, 0), {1, 2}, {2, 3}}) instruction.InPlace(output, input);
        instruction.Set<double>(5, [](int64_t) { return 0.5; });
        instruction.Set<float>(3, [](int64_t) { return 0.01; });  // a second moment is positive
      }
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        if (c.inputs[i].dtype == DType::kI32) instruction.Set<int32_t>(i, [](int64_t t) { return t * 5 % kT; });
      }
      const double seconds = instruction.Seconds();
      const Cost cost = instruction.cost();
      const double rate = static_cast<double>((cost.read + cost.written).v) / seconds;
      least = std::min(least, rate / copy);
      fmt::print("{:5} {:28} {:8.3f} ms {:7.0f} GB/s {:5.0f} % of a copy\n", ToString(dtype), c.name, seconds * 1e3,
                 rate * 1e-9, 100 * rate / copy);
    }
  }
  fmt::print("memory-bound kernels: at least {:.0f} % of a copy's rate\n", 100 * least);
}

// An adapter's products, by the vendor's library: r wide, so that bytes bound them. In a step of LoRA at this size they
// are a tenth of the time even at a copy's rate, and more where they miss it.
void ThinProducts(Device& device, double copy) {
  constexpr int64_t kRank = 16, kF = 14336;
  const auto of = [](int64_t rows, int64_t columns) { return TensorType{DType::kBF16, {rows, columns}}; };
  const TensorType x = of(kT, kD), a = of(kRank, kD), x_a = of(kT, kRank), b = of(kF, kRank), y = of(kT, kF);
  const struct {
    const char* name;
    Op op;
    Types inputs;
    bool acc;
  } cases[] = {{"x A^T", Op::kLinear, {x, a}, false},         {"y += x_a B^T", Op::kLinear, {x_a, b, y}, true},
               {"d_y B", Op::kLinearDx, {y, b}, false},       {"d_x += d_x_a A", Op::kLinearDx, {x_a, a, x}, true},
               {"d_y^T x_a", Op::kLinearDw, {y, x_a}, false}, {"d_x_a^T x", Op::kLinearDw, {x_a, x}, false}};
  for (const auto& c : cases) {
    DeviceInstruction instruction(device, c.op, c.inputs, {{"acc", int64_t{c.acc}}});
    if (c.acc) instruction.InPlace(0, 2);
    const double seconds = instruction.Seconds();
    const Cost cost = instruction.cost();
    const double rate = static_cast<double>((cost.read + cost.written).v) / seconds;
    fmt::print("bf16  product {:20} {:8.3f} ms {:7.0f} GB/s {:5.0f} % of a copy\n", c.name, seconds * 1e3, rate * 1e-9,
               100 * rate / copy);
  }
}

void Attention(Device& device, DType dtype, int64_t heads, int64_t kv_heads, int64_t E, int64_t document, double peak) {
  const int64_t T = dtype == DType::kF32 ? 4096 : kT;  // f32 has no matrix units: shorter, or it takes seconds
  const TensorType q = {dtype, {T, heads * E}}, k = {dtype, {T, kv_heads * E}}, starts = {DType::kI32, {T}};
  const TensorType lse = {DType::kF32, {T, heads}};
  const Attributes attributes = {{"heads", heads},
                                 {"kv_heads", kv_heads},
                                 {"row", std::max<int64_t>(document, 2048)},
                                 {"scale", 1 / std::sqrt(static_cast<double>(E))}};
  const auto start = [&](int64_t t) { return t / document * document; };
  DeviceInstruction forward(device, Op::kAttention, {q, k, k, starts}, attributes);
  forward.Set<int32_t>(3, start);
  const double f = forward.Seconds();
  DeviceInstruction backward(device, Op::kAttentionBackward, {q, q, k, k, q, lse, starts}, attributes);
  backward.Set<int32_t>(6, start);
  backward.TakeOutput(0, forward, 4);
  backward.TakeOutput(1, forward, 5);
  const double b = backward.Seconds();
  const double flops =
      4.0 * static_cast<double>(T) * static_cast<double>(document + 1) / 2 * static_cast<double>(heads * E);
  fmt::print(
      "{:5} attention {:2}/{} heads of {:3}, documents of {:5}: forward {:8.3f} ms {:4.0f} TFLOP/s {:3.0f} %, backward "
      "{:8.3f} ms {:4.0f} TFLOP/s {:3.0f} % of the peak\n",
      ToString(dtype), heads, kv_heads, E, document, f * 1e3, flops / f * 1e-12, 100 * flops / f / peak, b * 1e3,
      2.5 * flops / b * 1e-12, 250 * flops / b / peak);
}

int Main() {
  auto opened = OpenGpu(0);
  if (!opened.ok()) {
    fmt::print(stderr, "{}\n", opened.status().message());
    return 1;
  }
  Device& device = **opened;
  const double bf16 = Must(MeasureProductPeak(device, DType::kBF16)),
               f32 = Must(MeasureProductPeak(device, DType::kF32));
  const CopyRates copies = Must(MeasureCopyRates(device));
  fmt::print(
      "{}: {:.0f} TFLOP/s in products of bf16, {:.0f} of f32; copies {:.0f} GB/s within, {:.1f} to it, {:.1f} from "
      "it\n",
      device.name(), bf16 * 1e-12, f32 * 1e-12, copies.within * 1e-9, copies.to_device * 1e-9,
      copies.from_device * 1e-9);
  ThinProducts(device, copies.within);
  MemoryBound(device, copies.within);
  for (const int64_t document : {512, 2048, 16384}) Attention(device, DType::kBF16, 32, 8, 128, document, bf16);
  Attention(device, DType::kBF16, 32, 8, 64, 2048, bf16);
  Attention(device, DType::kF32, 32, 8, 128, 2048, f32);
  return 0;
}

}  // namespace
}  // namespace temper::bench

int main() {
  return temper::bench::Main();
}
