#include "runtime/arena.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/check.h"
#include "base/machine_memory.h"

namespace temper {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

Result<std::unique_ptr<Arena>> Arena::Create(Bytes size) {
  // Huge pages: a GEMM that strides through gigabytes of 4 KiB pages spends its time in TLB misses.
  const Bytes reserved = AlignUp(std::max(size, Bytes{1}), kHugePage) + Bytes{kHugePage};
  const AvailableMemory available = FindAvailableMemory();
  void* const raw = reserved <= available.bytes ? mmap(nullptr, static_cast<size_t>(reserved.v), PROT_READ | PROT_WRITE,
                                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                                : MAP_FAILED;
  if (raw == MAP_FAILED) {
    return OutOfMemory(fmt::format(
        "the run needs an arena of {} but this machine has {} available. Try --memory.recompute block, a smaller "
        "--max_seq_len or --per_device_train_batch_size, or --method lora; `temper plan` shows the effect of each",
        ToString(size), available.ToString()));
  }
  const auto address = reinterpret_cast<uintptr_t>(raw);
  auto* const base = reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage);
  // The slack before and after the aligned range is returned, so that reserved equals planned.
  const size_t lead = static_cast<size_t>(base - static_cast<std::byte*>(raw));
  const size_t used = static_cast<size_t>(AlignUp(std::max(size, Bytes{1}), kHugePage).v);
  if (lead > 0) munmap(raw, lead);
  if (static_cast<size_t>(reserved.v) > lead + used) munmap(base + used, static_cast<size_t>(reserved.v) - lead - used);
  madvise(base, used, MADV_HUGEPAGE);
  for (size_t i = 0; i < static_cast<size_t>(size.v); i += 4096) base[i] = std::byte{0};
  return std::unique_ptr<Arena>(new Arena(base, size, Bytes{static_cast<int64_t>(used)}, nullptr));
}

std::unique_ptr<Arena> Arena::Over(std::span<std::byte> memory) {
  return std::unique_ptr<Arena>(
      new Arena(memory.data(), Bytes{static_cast<int64_t>(memory.size())}, Bytes{0}, nullptr));
}

Result<std::unique_ptr<Arena>> Arena::On(Device& device, Bytes size) {
  TEMPER_ASSIGN_OR_RETURN(const std::span<std::byte> memory, device.Allocate(size));
  return std::unique_ptr<Arena>(new Arena(memory.data(), size, Bytes{0}, &device));
}

Status Arena::PinFor(Device& device) {
  TEMPER_CHECK(on_host() && pinned_for_ == nullptr) << "memory that is a device's, or pinned";
  TEMPER_RETURN_IF_ERROR(device.Pin({base_, static_cast<size_t>(size_.v)}));
  pinned_for_ = &device;
  return OkStatus();
}

Arena::~Arena() {
  if (pinned_for_ != nullptr) pinned_for_->Unpin({base_, static_cast<size_t>(size_.v)});
  if (reserved_ > Bytes{0}) munmap(base_, static_cast<size_t>(reserved_.v));
}

}  // namespace temper
