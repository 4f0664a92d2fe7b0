// For tests: what gemm_tile_amx-inl.h and attention_tile_amx-inl.h compute where the processor has no AMX.
#pragma once

#include "backend/cpu/attention_tile.h"
#include "backend/cpu/gemm_tile.h"

namespace temper {

// REQUIRES: Isa::kAvx512Bf16Dot is among RunnableIsas().
extern const TileKernels kTilesBF16AmxEmulated;
extern const AttentionKernels kAttentionBF16AmxEmulated;

// Threads that have configured their tile registers and not released them. Read by __atomic_load_n, or when no product
// runs.
extern int threads_with_emulated_tiles;

}  // namespace temper
