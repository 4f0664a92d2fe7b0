#include "runtime/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "base/check.h"

namespace temper {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

// The number after `key` in a file of "key: value" lines; -1 where there is none.
int64_t NumberAfter(const char* path, const std::string& key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, key.size(), key) == 0) return std::strtoll(line.c_str() + key.size(), nullptr, 10);
  }
  return -1;
}

int64_t FirstNumber(const char* path) {
  std::ifstream in(path);
  int64_t n = -1;
  return in >> n ? n : -1;
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::Create(Bytes size) {
  // Huge pages: a GEMM that strides through gigabytes of 4 KiB pages spends its time in TLB misses.
  const Bytes reserved = AlignUp(std::max(size, Bytes{1}), kHugePage) + Bytes{kHugePage};
  const Bytes available = AvailableMemory();
  void* const raw = reserved <= available ? mmap(nullptr, static_cast<size_t>(reserved.v), PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                          : MAP_FAILED;
  if (raw == MAP_FAILED) {
    return OutOfMemory(fmt::format(
        "the run needs an arena of {} but this machine has {} available. Try --memory.recompute block, a smaller "
        "--max_seq_len or --per_device_train_batch_size, or --method lora; `temper plan` shows the effect of each",
        ToString(size), ToString(available)));
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

Bytes AvailableMemory() {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  if (const int64_t kib = NumberAfter("/proc/meminfo", "MemAvailable:"); kib >= 0) bytes = kib << 10;
  const int64_t limit = FirstNumber("/sys/fs/cgroup/memory.max"), used = FirstNumber("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) {
    // What a cgroup uses includes the pages of files it has read (the model just loaded), which the kernel gives back.
    const int64_t cached = std::max<int64_t>(NumberAfter("/sys/fs/cgroup/memory.stat", "active_file "), 0) +
                           std::max<int64_t>(NumberAfter("/sys/fs/cgroup/memory.stat", "inactive_file "), 0);
    bytes = std::min(bytes, std::max<int64_t>(limit - std::max<int64_t>(used - cached, 0), 0));
  }
  return {bytes};
}

Bytes ResidentMemory() {
  return {std::max<int64_t>(NumberAfter("/proc/self/status", "VmRSS:"), 0) << 10};
}

Bytes PeakResidentMemory() {
  rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? Bytes{static_cast<int64_t>(usage.ru_maxrss) << 10} : Bytes{};
}

}  // namespace temper
