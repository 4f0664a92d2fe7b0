#include "backend/cpu/emulator/amx-inl.h"
// What the instructions are called must be known before they are used.
#include "backend/cpu/attention/attention_tile_amx-inl.h"

namespace temper {

constexpr AttentionKernels kAttentionBF16AmxEmulated = AttentionTable<PairMath, void>(kTilesBF16AmxEmulated);

}  // namespace temper
