// Move: the runtime's part of fetch and evict, a copy of a tensor's bytes from one tier to another.
#pragma once

#include <memory>

#include "device/device.h"
#include "device/kernel.h"
#include "device/store.h"
#include "program/program.h"
#include "runtime/pinned_staging.h"

namespace temper {

// One end of a move: an address in a tier's memory.
struct MoveEnd {
  std::byte* address = nullptr;
  Tier tier = Tier::kDevice;
};

// What carries out a move.
struct MovePath {
  StoreStream* disk = nullptr;  // the disk tier's memory
  Stream* link = nullptr;       // on which copies between a device and pinned memory are enqueued; nullptr: the device
                                // is the host, whose copies are done when they return
  PinnedStaging* staging = nullptr;  // of a move between a device apart and the disk
};

// Its ends, not its arguments, give the addresses. What `path` points to must outlive it.
std::unique_ptr<Kernel> MakeMove(const MoveEnd& from, const MoveEnd& to, Bytes size, const MovePath& path);

// The experts of rows, sorted, in the host's memory: those of a stack's matrices that a routed fetch moves.
struct RoutedRows {
  const int32_t* expert_P = nullptr;
  int64_t rows = 0, matrices = 0;
};

// As MakeMove, of matrices of a stack of `size` bytes. REQUIRES: the device is the host.
std::unique_ptr<Kernel> MakeRoutedFetch(const MoveEnd& from, const MoveEnd& to, Bytes size, const RoutedRows& rows,
                                        const MovePath& path);

}  // namespace temper
