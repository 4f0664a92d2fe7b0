// pack_weights: keeps a frozen bf16 matrix that only products read in the layouts in which their kernels take it
// (OpRule::packed), so that no step packs it again. It is packed while it is loaded. Where the backward reads it, too,
// that is a second value, named RowPairsName of it: the weights of a LoRA run then take twice their bytes, and not one
// bit of a result changes.
#pragma once

#include "compile/memory/step_graphs.h"

namespace temper {

// REQUIRES: all values are on the device; before UpdateInPlace; kernels that read these layouts.
void PackWeights(StepGraphs* step);

}  // namespace temper
