#include "run/processor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/gpu/gpu_device.h"
#include "base/log.h"
#include "base/philox.h"
#include "device/enqueued_seconds.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "program/program.h"
#include "tensor/view.h"

namespace temper {
namespace {

// Memory of a device, freed on destruction.
class Lent {
 public:
  static Result<Lent> From(Device& device, Bytes size) {
    TEMPER_ASSIGN_OR_RETURN(const std::span<std::byte> memory, device.Allocate(size));
    return Lent(device, memory);
  }
  Lent(Lent&& other) noexcept : device_(other.device_), memory_(std::exchange(other.memory_, {})) {}
  ~Lent() {
    if (memory_.data() != nullptr) device_.Release(memory_);
  }
  std::span<std::byte> memory() const { return memory_; }
  std::byte* data() const { return memory_.data(); }

 private:
  Lent(Device& device, std::span<std::byte> memory) : device_(device), memory_(memory) {}
  Device& device_;
  std::span<std::byte> memory_;
};

Result<double> ProductSeconds(Device& device, DType dtype, int64_t n) {
  const TensorType matrix{dtype, {n, n}};
  KernelSpec spec{.op = Op::kLinear, .inputs = {matrix, matrix}, .outputs = {matrix}};
  spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, spec.attributes, spec.threads);
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, device.kernels().Make(spec));
  const Bytes size = AlignUp(matrix.bytes(), kAlignment);
  TEMPER_ASSIGN_OR_RETURN(const Lent memory, Lent::From(device, size * 3 + spec.workspace));
  // Zeros would multiply faster than other numbers. One row of random numbers is enough, shifted in each row.
  std::vector<std::byte> host(static_cast<size_t>(matrix.bytes().v));
  DispatchFloat(dtype, [&]<class T>() {
    const std::span<T> x = View{host.data(), matrix}.as<T>();
    const auto drawn = static_cast<size_t>(std::min<int64_t>(2 * n + 1, n * n));
    for (size_t i = 0; i < drawn; ++i) x[i] = FromFloat<T>(static_cast<float>(NormalAt({.seed = 1}, i)));
    for (size_t i = drawn; i < x.size(); ++i) x[i] = x[i - drawn];
  });
  std::byte* operands[] = {memory.data(), memory.data() + size.v, memory.data() + 2 * size.v};
  TEMPER_RETURN_IF_ERROR(device.stream().CopyToDevice(host, operands[0]));
  TEMPER_RETURN_IF_ERROR(device.stream().CopyToDevice(host, operands[1]));
  TEMPER_RETURN_IF_ERROR(device.stream().Synchronize());
  TEMPER_ASSIGN_OR_RETURN(const Seconds seconds, EnqueuedSeconds(device, [&] {
                            return kernel->Run({operands, operands + 2, memory.data() + 3 * size.v});
                          }));
  return seconds.v;
}

// A launcher may show each rank only its own GPU.
bool SomeAreHidden() {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

}  // namespace

Result<ProcessorChoice> ChooseProcessor(DeviceChoice wanted, const RankOfMachine& rank) {
  const ProcessorChoice cpu{.name = fmt::format("this CPU ({})", ToString(DetectIsa())),
                            .has_bf16 = DetectIsa() >= Isa::kAvx512Bf16};
  if (wanted == DeviceChoice::kCpu) return cpu;
  const Result<GpuInventory> found = ListGpus();
  if (!found.ok()) return wanted == DeviceChoice::kAuto ? Result<ProcessorChoice>(cpu) : found.status();
  std::string refused;
  std::vector<int> usable;
  for (size_t i = 0; i < found->gpus.size(); ++i) {
    const GpuFacts& gpu = found->gpus[i];
    if (gpu.refused.empty()) {
      usable.push_back(static_cast<int>(i));
    } else if (refused.empty()) {
      refused = fmt::format("GPU {} ({}): {}", i, gpu.name, gpu.refused);
    }
  }
  const bool is_shown_its_own = usable.size() == 1 && !rank.launched && SomeAreHidden();
  const auto own = static_cast<size_t>(is_shown_its_own ? 0 : rank.rank);
  if (is_shown_its_own || static_cast<size_t>(rank.ranks) <= usable.size()) {
    const GpuFacts& gpu = found->gpus[static_cast<size_t>(usable[own])];
    return ProcessorChoice{.gpu = usable[own], .name = gpu.name, .uuid = gpu.uuid, .has_bf16 = true};
  }
  if (!usable.empty()) {
    refused = fmt::format(
        "{} ranks on this machine need a GPU each, but {} can be used: lower nprocs, or set device: "
        "cpu",
        rank.ranks, usable.size() == 1 ? "one GPU" : fmt::format("{} GPUs", usable.size()));
  }
  if (wanted == DeviceChoice::kGpu) return Unsupported(refused);
  LogWarning("computing on the CPU: " + refused);
  return cpu;
}

Result<Processor> Processor::Open(const ProcessorChoice& choice, int threads) {
  Processor processor;
  if (choice.on_gpu()) {
    TEMPER_ASSIGN_OR_RETURN(processor.device_, OpenGpu(choice.gpu));
  } else {
    processor.cpu_ = MakeCpuKernels({.threads = threads});
  }
  return processor;
}

Result<std::unique_ptr<Arena>> Processor::Reserve(Bytes size) const {
  return device_ ? Arena::On(*device_, size) : Arena::Create(size);
}

Result<double> MeasureProductPeak(Device& device, DType dtype) {
  constexpr double kLongEnough = 1e-3;  // a launch of some microseconds is negligible
  constexpr int64_t kLargest = 8192;
  for (int64_t n = 256;; n *= 2) {
    TEMPER_ASSIGN_OR_RETURN(const double seconds, ProductSeconds(device, dtype, n));
    if (seconds >= kLongEnough || n == kLargest) return 2.0 * static_cast<double>(n * n * n) / seconds;
  }
}

Result<CopyRates> MeasureCopyRates(Device& device) {
  // Several times a cache's size; less for the host's memory, which is slow to touch.
  constexpr Bytes kWithin = MiB(512), kAcross = MiB(64);
  Stream& stream = device.stream();
  const TensorType bytes{DType::kBF16, {kWithin.v / 1024, 512}};
  KernelSpec spec{.op = Op::kSliceRows, .inputs = {bytes}, .outputs = {bytes}};
  spec.attributes.Set("begin", int64_t{0});
  spec.attributes.Set("rows", bytes.shape[0]);
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> copy, device.kernels().Make(spec));
  TEMPER_ASSIGN_OR_RETURN(const Lent memory, Lent::From(device, kWithin * 2));
  std::byte* operands[] = {memory.data(), memory.data() + kWithin.v};
  const auto rate = [](Bytes moved, Seconds seconds) { return static_cast<double>(moved.v) / seconds.v; };
  CopyRates rates;
  TEMPER_ASSIGN_OR_RETURN(Seconds seconds, EnqueuedSeconds(device, [&] {
                            return copy->Run({operands, operands + 1, {}});
                          }));
  // The faster of our kernel and the vendor's: the peak that other kernels are compared with should not be slow.
  TEMPER_ASSIGN_OR_RETURN(const Seconds vendors,
                          EnqueuedSeconds(device, [&] { return stream.Copy(operands[0], operands[1], kWithin); }));
  rates.within = rate(kWithin * 2, std::min(seconds, vendors));
  // Pinned, like the host's tier.
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Arena> host, Arena::Create(kAcross));
  TEMPER_RETURN_IF_ERROR(host->PinFor(device));
  TEMPER_ASSIGN_OR_RETURN(seconds,
                          EnqueuedSeconds(device, [&] { return stream.Copy(host->At({}), operands[0], kAcross); }));
  rates.to_device = rate(kAcross, seconds);
  TEMPER_ASSIGN_OR_RETURN(seconds,
                          EnqueuedSeconds(device, [&] { return stream.Copy(operands[0], host->At({}), kAcross); }));
  rates.from_device = rate(kAcross, seconds);
  return rates;
}

}  // namespace temper
