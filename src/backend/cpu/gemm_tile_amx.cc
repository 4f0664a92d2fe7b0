#include "backend/cpu/gemm_tile_amx-inl.h"

namespace temper {

const TileKernels kTilesBF16Amx = kTable;

}  // namespace temper
