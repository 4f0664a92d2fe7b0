#include "backend/cpu/emulator/amx-inl.h"
// What the instructions are called must be known before they are used.
#include "backend/cpu/products/gemm_tile_amx-inl.h"

namespace temper {

const TileKernels kTilesBF16AmxEmulated = kTable;
__thread EmulatedRegisters emulated_registers;
int threads_with_emulated_tiles = 0;

}  // namespace temper
