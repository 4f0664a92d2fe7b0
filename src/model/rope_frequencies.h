// Rotary frequencies from a config.json of transformers v4 (rope_theta, rope_scaling) or v5 (rope_parameters).
#pragma once

#include <string>
#include <vector>

#include "format/json.h"

namespace temper {

// inv_freq[i] for i in [0, head_dim/2): theta^(-2i/head_dim), then scaled: none ("default"), linear (Chen et al. 2023),
// or llama3 (transformers, _compute_llama3_parameters: long waves are stretched by `factor`, short ones kept, between
// the two interpolated). Each is rounded to f32, as transformers keeps them. Other scalings are kUnsupported.
Result<std::vector<double>> RopeFrequencies(const Json& config, int64_t head_dim, int64_t max_positions,
                                            const std::string& where);

}  // namespace temper
