// Move: the runtime's part of fetch and evict, a copy of a tensor's bytes from one tier to another.
#pragma once

#include <memory>

#include "device/device.h"
#include "device/kernel.h"

namespace temper {

// One end of a move: an address, and the stream of the memory that it is in.
struct MoveEnd {
  std::byte* address = nullptr;
  Stream* stream = nullptr;
};

// REQUIRES: one end is the host's. What it is run on
// is in its ends, not in its arguments.
std::unique_ptr<Kernel> MakeMove(const MoveEnd& from, const MoveEnd& to, Bytes bytes);

}  // namespace temper
