// linear and its two gradients as matrix products of given tiles: the kernels' maker (kernels.h) chooses the tiles,
// tests may pass others.
#pragma once

#include <memory>

#include "backend/cpu/products/gemm_tile.h"
#include "device/kernel.h"

namespace temper {

// REQUIRES: spec.op is linear, linear_dx or linear_dw of f32 or bf16, and has passed its shape rule; tiles of its
// operands' dtype, which outlive the kernel.
std::unique_ptr<Kernel> MakeLinearOf(const KernelSpec& spec, const TileKernels& tiles);

}  // namespace temper
