// Attention over packed rows and its gradient with given tiles: the kernels' maker (kernels.h) chooses the tiles, tests
// may pass others.
#pragma once

#include <memory>

#include "backend/cpu/attention/attention_tile.h"
#include "device/kernel.h"

namespace temper {

// REQUIRES: spec.op is attention, attention_backward or a step of either, has passed its shape rule, and tiles apply
// (Served, attention_units.h); a table of q's dtype, which outlives the kernel.
std::unique_ptr<Kernel> MakeAttentionOf(const KernelSpec& spec, const AttentionKernels& table);

}  // namespace temper
