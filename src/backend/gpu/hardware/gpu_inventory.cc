#include "backend/gpu/hardware/gpu_inventory.h"

#include <fmt/core.h>

namespace temper::gpu {
namespace {

// bf16 in matrix units: NVIDIA's from Ampere, AMD's from gfx90a (MI200) on.
constexpr int kOldestMajor = 8;
constexpr int kOldestGfx9 = 0x0a;  // of gfx90a; gfx942 is 9 and 0x42

// CUDA's 13000 is 13.0, HIP's 60200000 is 6.2.
std::string DottedVersion(const DriverReport& report, int version) {
  return report.amd ? fmt::format("{}.{}", version / 10000000, version / 100000 % 100)
                    : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The vendor's program that lists cards and drivers.
const char* ListerOf(const DriverReport& report) {
  return report.amd ? "rocm-smi" : "nvidia-smi";
}

// Of a driver that is there and does not answer.
std::string RemedyOf(const DriverReport& report) {
  constexpr int kSystemNotReady = 802, kSystemDriverMismatch = 803;  // CUDA's
  if (!report.amd && report.code == kSystemNotReady) {
    return "where NVSwitches join the GPUs (HGX, DGX), their fabric manager has to run first, in the driver's version: "
           "systemctl start nvidia-fabricmanager";
  }
  if (!report.amd && report.code == kSystemDriverMismatch) {
    return "libcuda.so.1 is of another version than the driver that is loaded: reboot after an update of the driver, "
           "or take the container's own libcuda out of LD_LIBRARY_PATH";
  }
  return fmt::format("see what {} says", ListerOf(report));
}

std::string RefusalOf(const DriverReport& report, const DriverReport::Card& card) {
  if (!report.products.ok()) return report.products.status().message();
  if (report.amd) {
    if (card.major > 9 || (card.major == 9 && card.minor >= kOldestGfx9)) return "";
    return fmt::format(
        "it is a gfx{}{:02x}; bf16 in matrix units needs gfx90a (MI200) or newer. `temper plan` works without it",
        card.major, card.minor);
  }
  if (card.major >= kOldestMajor) return "";
  return fmt::format(
      "its compute capability is {}.{}; bf16 needs 8.0 or newer (A100, RTX 30). `temper plan` works without it",
      card.major, card.minor);
}

}  // namespace

Result<GpuInventory> InventoryOf(const DriverReport& report) {
  const char* const vendor = report.amd ? "AMD's" : "NVIDIA's";
  const char* const lister = ListerOf(report);
  switch (report.state) {
    case DriverState::kMissing:
      return NotFound(fmt::format("no driver for a GPU was found: install {} ({} shows it)", vendor, lister));
    case DriverState::kTooOld:
      return Unsupported(fmt::format("the GPU's driver is too old: it serves {} {}, this build needs {}; update it",
                                     report.amd ? "HIP" : "CUDA", DottedVersion(report, report.driver),
                                     DottedVersion(report, report.runtime)));
    case DriverState::kFailed:
      return NotFound(fmt::format("the GPU's driver does not answer: {}; {}", report.failure, RemedyOf(report)));
    case DriverState::kWorks:
      break;
  }
  if (report.cards.empty()) {
    return NotFound(fmt::format("no GPU was found ({} lists them; {} may hide them)", lister,
                                report.amd ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES"));
  }
  GpuInventory inventory;
  inventory.libraries =
      fmt::format("{} runtime {}, driver {}, {}", report.amd ? "HIP" : "CUDA", DottedVersion(report, report.runtime),
                  DottedVersion(report, report.driver), report.products.ok() ? *report.products : "no matrix products");
  if (!report.attention.ok()) {
    inventory.libraries += fmt::format(", attention by our own kernels: {}", report.attention.status().message());
  } else if (!report.attention->empty()) {
    inventory.libraries += ", " + *report.attention;
  }
  for (const DriverReport::Card& card : report.cards) {
    inventory.gpus.push_back({.name = card.name,
                              .major = card.major,
                              .minor = card.minor,
                              .memory = card.memory,
                              .uuid = card.uuid,
                              .refused = RefusalOf(report, card)});
  }
  return inventory;
}

Status CheckUsable(const DriverReport& report, const GpuInventory& inventory, int index) {
  if (index < 0 || index >= static_cast<int>(inventory.gpus.size())) {
    return NotFound(
        fmt::format("there is no GPU {}: this machine has {}, numbered from 0", index, inventory.gpus.size()));
  }
  if (!report.products.ok()) return report.products.status();
  const GpuFacts& gpu = inventory.gpus[static_cast<size_t>(index)];
  if (gpu.refused.empty()) return OkStatus();
  return Unsupported(fmt::format("GPU {} ({}): {}", index, gpu.name, gpu.refused));
}

std::string NoKernelsFor(const GpuFacts& gpu, bool amd, const std::string& reason) {
  const std::string architecture =
      amd ? fmt::format("gfx{}{:02x}", gpu.major, gpu.minor) : fmt::format("{}{}", gpu.major, gpu.minor);
  return fmt::format("this program was built without kernels for {} ({}): build it with {}={}", gpu.name, reason,
                     amd ? "TEMPER_HIP_ARCHITECTURES" : "CMAKE_CUDA_ARCHITECTURES", architecture);
}

std::string TooLittleFree(const std::string& card, Bytes size, Bytes free, Bytes total, const std::string& holders) {
  const std::string because = size > total ? ""
                              : holders.empty()
                                  ? ": another process may hold the rest (nvidia-smi or rocm-smi lists them)"
                                  : fmt::format(" ({}: end it, or choose another GPU)", holders);
  return fmt::format(
      "the run needs {} of {}, which has {} of {} free{}. Try a --memory.device below what is free, --memory.recompute "
      "block, a smaller --max_seq_len or --per_device_train_batch_size, or --method lora; `temper plan` shows the "
      "effect of each",
      ToString(size), card, ToString(free), ToString(total), because);
}

}  // namespace temper::gpu
