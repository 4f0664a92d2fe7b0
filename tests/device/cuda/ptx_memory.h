// How instructions find memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx_warp.h"

namespace temper::ptx {

// What is at `base` + `added` in each lane of `mask`.
void Addresses(const Warp& warp, const Operand& base, int64_t added, uint64_t (&addresses)[kLanes]);

// Where `bytes` bytes of each lane of `mask` lie on the host. False where a lane may not touch them: the launch fails.
bool Locate(Warp& warp, Space space, const uint64_t (&addresses)[kLanes], Mask mask, int64_t bytes, bool writes,
            std::byte* (&at)[kLanes]);

}  // namespace temper::ptx
