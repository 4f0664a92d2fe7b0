#include "backend/cpu/attention/attention_tile_amx-inl.h"

namespace temper {

constexpr AttentionKernels kAttentionBF16Amx = AttentionTable<PairMath, void>(kTilesBF16Amx);

}  // namespace temper
