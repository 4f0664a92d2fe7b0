#include "comm/local/shared_arenas.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

namespace temper {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

int64_t PageSize() {
  static const int64_t size = sysconf(_SC_PAGESIZE);
  return size;
}

bool Holds(uint64_t begin, uint64_t size, uint64_t address) {
  return address >= begin && address - begin < size;
}

}  // namespace

SharedArenas::SharedArenas(const HostMemory& memory, int self)
    : control_(memory.control()), self_(self), file_(memory.file()), mapped_(static_cast<size_t>(control_.ranks())) {}

SharedArenas::~SharedArenas() {
  for (const auto& mappings : mapped_) {
    for (const Mapping& m : mappings) munmap(m.memory, m.size);
  }
}

// Aligned to huge pages, in memory as in the file: a page can be huge only where both are.
Result<std::byte*> SharedArenas::Map(uint64_t offset, uint64_t size, bool own) const {
  const auto failed = [&] {
    return OutOfMemory(fmt::format("cannot map {} of {} memory: {}", ToString(Bytes{static_cast<int64_t>(size)}),
                                   own ? "this rank's" : "a peer's", std::strerror(errno)));
  };
  void* const reserved = mmap(nullptr, size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return failed();
  const auto address = reinterpret_cast<uintptr_t>(reserved);
  const uint64_t lead = (kHugePage - address % kHugePage) % kHugePage;
  std::byte* const base = static_cast<std::byte*>(reserved) + lead;
  if (lead > 0) munmap(reserved, lead);
  if (lead < kHugePage) munmap(base + size, kHugePage - lead);
  const int sharing = file_ < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  if (mmap(base, size, PROT_READ | PROT_WRITE, sharing | MAP_FIXED, file_, static_cast<off_t>(offset)) == MAP_FAILED) {
    const Status status = failed();
    munmap(base, size);
    return status;
  }
  madvise(base, size, MADV_HUGEPAGE);
  return base;
}

Result<std::span<std::byte>> SharedArenas::Allocate(Bytes size) {
  TEMPER_CHECK(size.v >= 0) << size.v;
  RankBlock& block = control_.rank(self_);
  // Where the next one begins is told by what this rank has mapped: the block is open to its peers.
  uint64_t begin = file_ < 0 ? 0 : HostMemory::RegionOf(self_);
  uint32_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::vector<Mapping>& own = mapped_[static_cast<size_t>(self_)];
    index = static_cast<uint32_t>(own.size());
    if (index > 0 && file_ >= 0) begin = own.back().begin + own.back().size;
  }
  if (index >= kMaxExtents) {
    return OutOfMemory(fmt::format("a rank can have {} arenas that its peers read; these are in use", kMaxExtents));
  }
  const auto used = static_cast<uint64_t>(AlignUp(std::max(size, Bytes{1}), kHugePage).v);
  if (file_ >= 0 && begin + used > HostMemory::RegionOf(self_ + 1)) {
    return OutOfMemory(fmt::format("an arena of {} is more than a rank can share", ToString(size)));
  }
  TEMPER_ASSIGN_OR_RETURN(std::byte* const memory, Map(begin, used, true));
  for (uint64_t i = 0; i < static_cast<uint64_t>(size.v); i += 4096) memory[i] = std::byte{0};
  if (file_ < 0) begin = reinterpret_cast<uint64_t>(memory);
  {
    const std::lock_guard lock(mutex_);
    mapped_[static_cast<size_t>(self_)].push_back({begin, used, memory});
  }
  block.extents[index] = {begin, used};
  block.num_extents.store(index + 1, std::memory_order_release);
  return std::span(memory, static_cast<size_t>(size.v));
}

uint64_t SharedArenas::AddressOf(const std::byte* p) const {
  if (file_ < 0) return reinterpret_cast<uint64_t>(p);
  const std::lock_guard lock(mutex_);
  for (const Mapping& m : mapped_[static_cast<size_t>(self_)]) {
    if (p >= m.memory && p < m.memory + m.size) return m.begin + static_cast<uint64_t>(p - m.memory);
  }
  TEMPER_CHECK(false) << "an operand of a collective is outside the memory from AllocateArena";
  return 0;
}

Status SharedArenas::NotShared(int rank) const {
  return Corrupt(control_.NameOf(rank) +
                 " shows memory that it does not share: its control block was overwritten, or it is another program");
}

Result<std::byte*> SharedArenas::At(int rank, uint64_t address, Bytes size) {
  if (file_ < 0) return reinterpret_cast<std::byte*>(address);
  const std::lock_guard lock(mutex_);
  auto& mapped = mapped_[static_cast<size_t>(rank)];
  for (const Mapping& m : mapped) {
    if (!Holds(m.begin, m.size, address)) continue;
    if (static_cast<uint64_t>(size.v) > m.size - (address - m.begin)) return NotShared(rank);
    return m.memory + (address - m.begin);
  }
  const RankBlock& block = control_.rank(rank);
  const uint32_t extents = std::min<uint32_t>(block.num_extents.load(std::memory_order_acquire), kMaxExtents);
  const uint64_t begin = HostMemory::RegionOf(rank), end = HostMemory::RegionOf(rank + 1);
  for (uint32_t i = 0; i < extents; ++i) {
    const Extent extent = block.extents[i];
    if (!Holds(extent.offset, extent.size, address)) continue;
    // What lies beyond the file would end in SIGBUS.
    if (extent.offset < begin || extent.offset > end || extent.size > end - extent.offset ||
        extent.offset % kHugePage != 0 || static_cast<uint64_t>(size.v) > extent.size - (address - extent.offset)) {
      return NotShared(rank);
    }
    TEMPER_ASSIGN_OR_RETURN(std::byte* const memory, Map(extent.offset, extent.size, false));
    mapped.push_back({extent.offset, extent.size, memory});
    return memory + (address - extent.offset);
  }
  return NotShared(rank);
}

void SharedArenas::Forget(int rank, const std::byte* p, Bytes size) const {
  // Of threads, and of the rank itself, there is nothing but the memory that it has.
  if (file_ < 0 || rank == self_ || size.v == 0) return;
  const std::optional<Mapping> mapping = [&]() -> std::optional<Mapping> {
    const std::lock_guard lock(mutex_);
    for (const Mapping& m : mapped_[static_cast<size_t>(rank)]) {
      if (p >= m.memory && p < m.memory + m.size) return m;
    }
    return std::nullopt;
  }();
  if (!mapping) return;
  // Without the lock: the call takes its time, and what is mapped stays.
  const int64_t page = PageSize(), at = p - mapping->memory;
  const auto begin = static_cast<uint64_t>(at / page * page);
  const auto end = static_cast<uint64_t>(AlignUp(Bytes{at} + size, page).v);
  madvise(mapping->memory + begin, std::min(end, mapping->size) - begin, MADV_DONTNEED);  // of a file: its pages stay
}

}  // namespace temper
