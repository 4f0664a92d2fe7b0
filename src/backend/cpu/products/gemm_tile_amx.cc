#include "backend/cpu/products/gemm_tile_amx-inl.h"

namespace temper {

const TileKernels kTilesBF16Amx = kTable;

}  // namespace temper
