// A cast into panels (tensor/element_layout.h): the one node that packs what several products read.
#pragma once

#include <memory>

#include "backend/cpu/gemm_tile.h"
#include "device/kernel.h"

namespace temper {

// REQUIRES: a cast of f32 or bf16 to a packed bf16 matrix; `tiles` of bf16 with pair_panels. `from_f32`: rounds n
// numbers to bf16.
std::unique_ptr<Kernel> MakePackOf(const KernelSpec& spec, const TileKernels& tiles,
                                   void (*from_f32)(const float* x, bf16* y, int64_t n));

}  // namespace temper
