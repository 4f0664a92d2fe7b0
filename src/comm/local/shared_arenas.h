// SharedArenas: memory of the ranks of one host that they can read in each other. Processes share one unnamed file (a
// memfd), in which each rank has a region of its own, sparse until it is used: nothing is left behind however a rank
// ends. Threads share their address space as it is.
//
// Thread rule: Allocate by the rank's own thread, the rest by any.
// Memory from Allocate stays mapped until the object is destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "comm/local/host_memory.h"

namespace temper {

class SharedArenas {
 public:
  SharedArenas(const HostMemory& memory, int self);  // `memory` must outlive it
  ~SharedArenas();
  SharedArenas(const SharedArenas&) = delete;
  SharedArenas& operator=(const SharedArenas&) = delete;

  // Zeroed, touched memory, on huge pages if the system has them. It does not check whether the machine has that much.
  Result<std::span<std::byte>> Allocate(Bytes size);

  // Memory of this rank as peers address it. REQUIRES: `p` lies in memory from Allocate.
  uint64_t AddressOf(const std::byte* p) const;
  // `size` bytes of `rank` at an address from its AddressOf, mapped on first use. Errors: a peer process says that they
  // lie where it shares no memory. Of threads nothing is checked.
  Result<std::byte*> At(int rank, uint64_t address, Bytes size);
  // Drops the residency of `rank`'s [p, p + size), as At returned it, in this process; the next read restores it.
  void Forget(int rank, const std::byte* p, Bytes size) const;

 private:
  struct Mapping {
    uint64_t begin, size;  // in the file, or the address itself
    std::byte* memory;
  };
  Result<std::byte*> Map(uint64_t offset, uint64_t size, bool own) const;
  Status NotShared(int rank) const;

  const ControlBlock control_;
  const int self_, file_;
  mutable std::mutex mutex_;
  std::vector<std::vector<Mapping>> mapped_;  // per rank; guarded by mutex_
};

}  // namespace temper
