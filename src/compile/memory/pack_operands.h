// pack_operands: what products read several times in a layout in which their kernels take it (OpRule::packed) is packed
// by one node, a cast, and not in each of them. Those are inputs of several products (q, k, v; gate, up), which their
// d_w read; a head, which the loss reads for each chunk of rows; and trained weights, which each micro-batch reads. Not
// one bit of a result changes.
#pragma once

#include "compile/memory/step_graphs.h"

namespace temper {

// `keeps`: copies of trained weights that several micro-batches read are buffers (Role::kCache), filled once per step;
// else each micro-batch makes those that it reads several times.
// REQUIRES: all values are on the device; after PackWeights and CutLoss, before UpdateInPlace; kernels that read these
// layouts.
void PackOperands(StepGraphs* step, bool keeps);

}  // namespace temper
