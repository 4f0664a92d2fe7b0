// Per-layer inputs (Gemma Team 2025, 2026; transformers, Gemma4TextModel): each token has a vector of its own for every
// block, from a table as wide as all of them together, and from a product of its embedding. A block gates it with its
// sum, and adds it there.
#pragma once

#include <cstdint>

#include "model/block_context.h"
#include "model/feed_forward/mlp.h"
#include "model/norm.h"

namespace temper {

struct PerLayerSpec {
  int64_t width = 0;  // of a block's vector of a token; 0: there are none
  int64_t vocab = 0;  // rows of the table
  Activation activation = Activation::kGeluTanh;
  NormSpec norm;
};

// Before the blocks: publishes the vectors of each, [T, width], made of the tokens and of what the first block reads.
// `prefix`: of the modules, "model.".
void PublishPerLayerInputs(ForwardBuilder& f, const PerLayerSpec& spec, const std::string& prefix, int64_t blocks,
                           Dim hidden, ValueId embedded_TD, SharedValues* shared);

// From the block's sum to what joins it: [T, D] both.
ValueId BuildPerLayerInput(ForwardBuilder& f, const PerLayerSpec& spec, const BlockContext& block, ValueId x_TD);

}  // namespace temper
