// How instructions address memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx_warp.h"

namespace temper::ptx {

// The addresses `base` + `added` in each lane of `mask`.
void Addresses(const Warp& warp, const Operand& base, int64_t added, uint64_t (&addresses)[kLanes]);

// The host's addresses of `bytes` bytes for each lane of `mask`. False if a lane may not touch them: the launch fails.
bool Locate(Warp& warp, Space space, const uint64_t (&addresses)[kLanes], Mask mask, int64_t bytes, bool writes,
            std::byte* (&at)[kLanes]);

}  // namespace temper::ptx
