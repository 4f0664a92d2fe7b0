// For tests: the products of gemm_tile_amx-inl.h where the processor has no AMX.
#pragma once

#include "backend/cpu/gemm_tile.h"

namespace temper {

// REQUIRES: Isa::kAvx512Bf16Dot is among RunnableIsas().
extern const TileKernels kTilesBF16AmxEmulated;

// Threads that have configured their tile registers and not released them. Read by __atomic_load_n, or when no product
// runs.
extern int threads_with_emulated_tiles;

}  // namespace temper
