// Memory of the simulated GPU. The host cannot touch it by the addresses it is given (a
// page fault ends the test that tries); kernels and copies find the same bytes at other
// addresses. Allocated memory holds NaN, and is aligned no better than CUDA promises.
// Also: which memory of the host is pinned, which kernels may touch by its own address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ptx_machine.h"

namespace temper::cuda {

// Any thread may call it.
class DeviceMemory final : public ptx::AddressSpace {
 public:
  enum class Kind : unsigned char { kDevice, kPinned, kRegistered };
  struct Range {
    uint64_t begin, end;
    std::byte* host;  // the host's address of its bytes
    Kind kind;
  };

  // nullptr: no room. `filled`: with NaN; otherwise as the machine returns it.
  void* Allocate(size_t bytes, bool filled);
  void* AllocatePinned(size_t bytes);
  // False if a page of it is registered or pinned already.
  bool Register(void* memory, size_t bytes);
  // False if no range of that kind begins at `memory`.
  bool Release(void* memory, Kind kind);

  std::byte* Find(uint64_t address, int64_t bytes) override;
  // The range that contains `address`; nullptr: pageable memory of the host, or unallocated.
  const Range* RangeOf(const void* address) const;
  int64_t allocated() const { return allocated_; }

 private:
  using Table = std::vector<Range>;  // by address
  void Insert(const Range& range);
  const Range* Holding(uint64_t address) const;

  std::mutex mutex_;  // guards changes
  // Readers take no lock: kernels look up each of their accesses. Old tables are kept, since readers may still use one.
  std::vector<std::unique_ptr<const Table>> tables_;
  std::atomic<const Table*> table_ = nullptr;
  std::atomic<int64_t> allocated_ = 0;
};

}  // namespace temper::cuda
