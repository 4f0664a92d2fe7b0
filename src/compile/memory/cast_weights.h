// cast_weights: keeps a trained bf16 matrix as its f32 master alone, which takes the matrix's name. Kernels read copies
// that are cast from it, one for the reads of a segment: 2 bytes a parameter less, for a pass over the master at each
// use. The update rounds its master in the same way, so no bit of a result changes. To what loads, saves and reshards
// weights it is a weight that is computed with in f32.
//
// Vectors keep their bf16 copies: a kernel for each would cost more than it saves. The rows that an embedding looks up
// are cast, not its table.
#pragma once

#include "compile/memory/step_graphs.h"

namespace temper {

// Bytes of the copies that CastWeights removes; 0: there are none.
Bytes CopiesOfMatrices(const StepGraphs& step);

// REQUIRES: all values are on the device; before UpdateInPlace.
void CastWeights(StepGraphs* step);

}  // namespace temper
