// What of a model the architecture that its family names does not compute (GgufArchitecture).
#pragma once

#include <string>
#include <vector>

#include "model/decoder_spec.h"

namespace temper {

// A few words for each, in the order of the model; empty: all is computed.
std::vector<std::string> MissingInGguf(const DecoderSpec& spec);

// The first attention of the model, also beside another mixer; nullptr: it has none.
const AttentionSpec* FirstAttention(const DecoderSpec& spec);
const AttentionSpec* AttentionOf(const DecoderBlock& block);
const Mamba2Spec* Mamba2Of(const DecoderBlock& block);
// The first experts, and the first MLP that stands in their place or is a block of its own.
const ExpertsSpec* FirstExperts(const DecoderSpec& spec);
const MlpSpec* MlpOf(const DecoderBlock& block);
// Of the layers that have one; 0: none has.
int64_t WindowOf(const DecoderSpec& spec);

}  // namespace temper
