#include "device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace temper::cuda {
namespace {

constexpr size_t kPage = 4096;
constexpr int kNan = 0xFF;
// CUDA promises addresses that are multiples of 256. The bytes of its pages before an allocation, and a page after it
// that is never mapped, are unallocated.
constexpr size_t kOffset = 256;

size_t MappedBytes(size_t bytes) {
  return (kOffset + bytes + kPage - 1) / kPage * kPage + kPage;
}

}  // namespace

void* DeviceMemory::Allocate(size_t bytes, bool filled) {
  const size_t mapped = MappedBytes(bytes);
  const int file = memfd_create("device", 0);
  TEMPER_CHECK(file >= 0) << "no memory file";
  if (ftruncate(file, static_cast<off_t>(mapped)) != 0) {
    close(file);
    return nullptr;
  }
  void* const seen = mmap(nullptr, mapped, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  void* const used = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  TEMPER_CHECK(seen != MAP_FAILED && used != MAP_FAILED) << bytes << " bytes could not be mapped";
  std::byte* const host = static_cast<std::byte*>(used) + kOffset;
  if (filled) std::memset(host, kNan, bytes);
  const auto begin = reinterpret_cast<uint64_t>(seen) + kOffset;
  Insert({begin, begin + bytes, host, Kind::kDevice});
  allocated_ += static_cast<int64_t>(bytes);
  return reinterpret_cast<void*>(begin);
}

void* DeviceMemory::AllocatePinned(size_t bytes) {
  void* const memory = aligned_alloc(kPage, (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage);
  TEMPER_CHECK(memory != nullptr) << bytes;
  std::memset(memory, kNan, bytes);
  const auto begin = reinterpret_cast<uint64_t>(memory);
  Insert({begin, begin + bytes, static_cast<std::byte*>(memory), Kind::kPinned});
  return memory;
}

bool DeviceMemory::Register(void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(memory);
  if (const Table* table = table_.load()) {
    for (const Range& r : *table) {
      if (r.begin / kPage <= (begin + bytes - 1) / kPage && begin / kPage <= (r.end - 1) / kPage) return false;
    }
  }
  Insert({begin, begin + bytes, static_cast<std::byte*>(memory), Kind::kRegistered});
  return true;
}

void DeviceMemory::Insert(const Range& range) {
  const std::lock_guard lock(mutex_);
  const Table* const old = table_.load();
  auto table = old == nullptr ? std::make_unique<Table>() : std::make_unique<Table>(*old);
  const auto after = std::upper_bound(table->begin(), table->end(), range.begin,
                                      [](uint64_t begin, const Range& r) { return begin < r.begin; });
  table->insert(after, range);
  table_ = table.get();
  tables_.push_back(std::move(table));
}

bool DeviceMemory::Release(void* memory, Kind kind) {
  const std::lock_guard lock(mutex_);
  const Table* const old = table_.load();
  if (old == nullptr) return false;
  auto table = std::make_unique<Table>(*old);
  const auto found = std::find_if(table->begin(), table->end(), [&](const Range& r) {
    return r.begin == reinterpret_cast<uint64_t>(memory) && r.kind == kind;
  });
  if (found == table->end()) return false;
  const Range range = *found;
  table->erase(found);
  table_ = table.get();
  tables_.push_back(std::move(table));
  if (kind == Kind::kPinned) free(memory);
  if (kind == Kind::kDevice) {
    const size_t bytes = range.end - range.begin, mapped = MappedBytes(bytes);
    munmap(range.host - kOffset, mapped);
    // Its addresses stay reserved: a stale access finds nothing, and not the next allocation.
    mmap(static_cast<std::byte*>(memory) - kOffset, mapped, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    allocated_ -= static_cast<int64_t>(bytes);
  }
  return true;
}

const DeviceMemory::Range* DeviceMemory::Holding(uint64_t address) const {
  // Consecutive accesses usually fall into one range.
  static thread_local const Table* last_table = nullptr;
  static thread_local const Range* last = nullptr;
  const Table* const table = table_.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  if (table == last_table && address >= last->begin && address < last->end) return last;
  const auto after =
      std::upper_bound(table->begin(), table->end(), address, [](uint64_t a, const Range& r) { return a < r.begin; });
  if (after == table->begin() || address >= std::prev(after)->end) return nullptr;
  last_table = table;
  last = &*std::prev(after);
  return last;
}

std::byte* DeviceMemory::Find(uint64_t address, int64_t bytes) {
  const Range* const range = Holding(address);
  if (range == nullptr || static_cast<uint64_t>(bytes) > range->end - address) return nullptr;
  return range->host + (address - range->begin);
}

const DeviceMemory::Range* DeviceMemory::RangeOf(const void* address) const {
  return Holding(reinterpret_cast<uint64_t>(address));
}

}  // namespace temper::cuda
