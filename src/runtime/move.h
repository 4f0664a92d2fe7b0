// Move: the runtime's part of fetch and evict, a copy of a tensor's bytes from one tier to another.
#pragma once

#include <memory>

#include "device/device.h"
#include "device/kernel.h"
#include "device/store.h"

namespace temper {

// One end of a move: an address of the host's or of a device, or (store != nullptr) a place in a store.
struct MoveEnd {
  std::byte* address = nullptr;
  Stream* stream = nullptr;  // of the memory that `address` is in
  Store* store = nullptr;
  Bytes at;
};

// REQUIRES: not both ends are stores; of two addresses one is the host's. What it is run on is in its ends, not in its
// arguments.
std::unique_ptr<Kernel> MakeMove(const MoveEnd& from, const MoveEnd& to, Bytes bytes);

}  // namespace temper
