// Multi-head latent attention (DeepSeek-AI 2024; transformers, DeepseekV3Attention): a token's keys and values are made
// of one narrow vector, the latents, and perhaps its queries of another one. Each head has keys of its own, and one
// rotary part that all heads share; values may be of another width than keys.
//
// Training and decoding compute with expanded keys and values, so a cache holds those: heads * (head_dim + rope_dim +
// v_head_dim) numbers a token, where latents would be kv_rank + rope_dim.
#pragma once

#include <cstdint>
#include <string>

#include "model/block_context.h"
#include "model/norm.h"

namespace temper {

struct LatentAttentionSpec {
  int64_t heads = 0;
  int64_t head_dim = 0, rope_dim = 0;  // elements of a query or key that do not turn, then those that do
  int64_t v_head_dim = 0;
  int64_t q_rank = 0, kv_rank = 0;  // widths of latents; q_rank 0: queries are made of the token itself
  int rope = 0;                     // index into DecoderSpec::ropes
  double scale = 0;                 // of scores; 0: 1 / sqrt(head_dim + rope_dim)
  bool bias = false;                // of the products that make latents, and of the output's
  NormSpec norm;                    // of latents

  // Modules: `path` in the block, the others in `path`.
  std::string path = "self_attn.";
  std::string q = "q_proj", q_a = "q_a_proj", q_norm = "q_a_layernorm", q_b = "q_b_proj";
  std::string kv_a = "kv_a_proj_with_mqa", kv_norm = "kv_a_layernorm", kv_b = "kv_b_proj", out = "o_proj";

  friend bool operator==(const LatentAttentionSpec&, const LatentAttentionSpec&) = default;
};

// From the block's input, normed, to what joins the residual sum: [T, D] both.
ValueId BuildLatentAttention(ForwardBuilder& f, const LatentAttentionSpec& spec, const BlockContext& block,
                             ValueId x_TD);

}  // namespace temper
