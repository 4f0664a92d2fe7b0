// Memory of the GPU that tests simulate. The host cannot touch it by the addresses it is given (a page fault ends the
// test that tries); kernels and copies find the same bytes under other addresses. What is allocated holds NaN, and
// starts no better aligned than CUDA promises. Beside it: which memory of the host is pinned, which kernels may touch
// by its own address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ptx_machine.h"

namespace temper::cuda {

// Any thread may call.
class DeviceMemory final : public ptx::AddressSpace {
 public:
  enum class Kind : unsigned char { kDevice, kPinned, kRegistered };
  struct Range {
    uint64_t begin, end;
    std::byte* host;  // where its bytes are
    Kind kind;
  };

  // nullptr: there is no room. `filled`: with NaN; else with what the machine gives.
  void* Allocate(size_t bytes, bool filled);
  void* AllocatePinned(size_t bytes);
  // False where a page of it is registered or pinned already.
  bool Register(void* memory, size_t bytes);
  // False where no range of that kind begins at `memory`.
  bool Release(void* memory, Kind kind);

  std::byte* Find(uint64_t address, int64_t bytes) override;
  // The range that holds `address`; nullptr: the host's memory, pageable, or nobody's.
  const Range* RangeOf(const void* address) const;
  int64_t allocated() const { return allocated_; }

 private:
  using Table = std::vector<Range>;  // by address
  void Insert(const Range& range);
  const Range* Holding(uint64_t address) const;

  std::mutex mutex_;  // guards changes
  // Readers take no lock: kernels ask for each of their accesses. Tables are kept, for readers may be within one.
  std::vector<std::unique_ptr<const Table>> tables_;
  std::atomic<const Table*> table_ = nullptr;
  std::atomic<int64_t> allocated_ = 0;
};

}  // namespace temper::cuda
