// Latent attention: what its families read alike from config.json.
#pragma once

#include <string>

#include "model/decoder.h"

namespace temper {

// Values of keys that a config.json omits: the defaults of the family's class in transformers.
struct LatentDefaults {
  int64_t q_rank = 0, kv_rank = 0;                     // q_lora_rank (0: null), kv_lora_rank
  int64_t head_dim = 128, rope_dim = 64;               // qk_nope_head_dim, qk_rope_head_dim
  int64_t v_head_dim = 128;                            // v_head_dim; 0: hidden / heads
  bool interleaved = true, may_be_interleaved = true;  // the latter: the class has the key rope_interleave
  bool ignores_head_dim = false;                       // a file's head_dim has no effect; else it is qk_rope_head_dim
};

// ReadDecoder for models whose blocks all have latent attention: reads its sizes, attention_bias, the rotary embedding
// of the part that turns and the scale of scores (yarn_apply_mscale). `defaults` has what all families have.
Result<DecoderSpec> ReadLatentDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                      const LatentDefaults& latent, const std::string& where);

// llama.cpp's architecture for all of them, with experts.
GgufArchitecture LatentGguf();

}  // namespace temper
