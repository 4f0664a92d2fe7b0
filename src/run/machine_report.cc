#include "run/machine_report.h"

#include <fmt/core.h>

#include "backend/cpu/products/gemm_peak.h"
#include "backend/gpu/gpu_device.h"
#include "comm/nccl/nccl_api.h"
#include "run/processor.h"

namespace temper {
namespace {

// ", 512.00 MiB of it in use": by all processes, this one's
// context among them. `collectives`: the library for several GPUs.
std::string InUse(int gpu, std::string* collectives) {
  const auto device = OpenGpu(gpu);
  if (!device.ok()) return "; cannot be used: " + device.status().message();
  *collectives = (*device)->collectives_library();
  const auto memory = (*device)->MeasureMemory();
  if (!memory.ok()) return "";
  const std::string holders = (*device)->MemoryHolders();
  return fmt::format(", {} of it in use{}", ToString(memory->beside), holders.empty() ? "" : "; " + holders);
}

}  // namespace

std::string DescribeGpus() {
  auto found = ListGpus();
  if (!found.ok()) return fmt::format("gpu         none: {}\n", found.status().message());
  std::string text = fmt::format("gpu         {}\n", found->libraries), collectives;
  for (size_t i = 0; i < found->gpus.size(); ++i) {
    const GpuFacts& gpu = found->gpus[i];
    text += fmt::format(
        "gpu {:<7} {}, compute capability {}.{}, {}{}\n", i, gpu.name, gpu.major, gpu.minor, ToString(gpu.memory),
        gpu.refused.empty() ? InUse(static_cast<int>(i), &collectives) : "; cannot be used: " + gpu.refused);
  }
  if (collectives.empty()) return text;
  const auto between = LoadNccl(collectives);
  return text +
         fmt::format("between     {}\n", between.ok() ? (*between)->library : "none: " + between.status().message());
}

std::string DescribeGpuRates() {
  const auto found = ListGpus();
  std::string text;
  for (size_t i = 0; found.ok() && i < found->gpus.size(); ++i) {
    if (!found->gpus[i].refused.empty()) continue;
    const auto measured = [&]() -> Result<std::string> {
      TEMPER_ASSIGN_OR_RETURN(const auto device, OpenGpu(static_cast<int>(i)));
      TEMPER_ASSIGN_OR_RETURN(const double bf16, MeasureProductPeak(*device, DType::kBF16));
      TEMPER_ASSIGN_OR_RETURN(const double f32, MeasureProductPeak(*device, DType::kF32));
      TEMPER_ASSIGN_OR_RETURN(const CopyRates copies, MeasureCopyRates(*device));
      return fmt::format(
          "{:.0f} TFLOP/s in matrix products of bf16, {:.0f} of f32; copies {:.0f} GB/s within, {:.1f} to it, {:.1f} "
          "from it",
          bf16 * 1e-12, f32 * 1e-12, copies.within * 1e-9, copies.to_device * 1e-9, copies.from_device * 1e-9);
    }();
    text += fmt::format("gpu {:<7} {}\n", i, measured.ok() ? *measured : measured.status().message());
  }
  return text;
}

std::string InstructionSet() {
  return std::string(ToString(DetectIsa()));
}

double CpuPeak(DType dtype, int threads) {
  return MeasureGemmPeak(dtype, threads, DetectIsa());
}

std::string DescribeCpuRates(int threads) {
  constexpr double kSeconds = 1;        // of each type
  constexpr double kUndisturbed = 0.9;  // of the best: what half of the rounds reach on an idle machine
  std::string text;
  bool shared = false;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto number = [](double rate) { return fmt::format("{:.{}f}", rate * 1e-9, rate < 1e10 ? 2 : 0); };
    if (DetectIsa() == Isa::kScalar) {
      text += fmt::format("{:<11} {} GFLOP/s in matrix products\n", ToString(dtype),
                          number(MeasureProductRate(dtype, threads, DetectIsa())));
      continue;
    }
    const ProductSpeed speed = MeasureProductSpeed(dtype, threads, DetectIsa(), kSeconds);
    text += fmt::format("{:<11} {} GFLOP/s in matrix products, of {} that the multipliers reach", ToString(dtype),
                        number(speed.products.best), number(speed.peak.best));
    if (speed.peak.median < kUndisturbed * speed.peak.best) {
      shared = true;
      text +=
          fmt::format("; {} and {} in half of the rounds", number(speed.products.median), number(speed.peak.median));
    }
    text += '\n';
  }
  if (shared) {
    text +=
        "busy        something else uses these processors, here or on the same host: figures of this machine wander\n";
  }
  return text;
}

}  // namespace temper
