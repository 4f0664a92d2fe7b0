// A cast into panels (tensor/element_layout.h): the one node that packs what several products read.
#pragma once

#include <memory>

#include "backend/cpu/products/gemm_tile.h"
#include "device/kernel.h"

namespace temper {

// REQUIRES: a cast of bf16 to a packed layout; tiles of bf16 with pair_panels, which outlive the kernel.
std::unique_ptr<Kernel> MakePackOf(const KernelSpec& spec, const TileKernels& tiles);

}  // namespace temper
