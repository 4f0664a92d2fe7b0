// Attention with grouped queries: the mixer of transformers. Rotary embeddings, norms of q and k, windows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/block_context.h"
#include "model/norm.h"

namespace temper {

struct AttentionSpec {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;    // tokens that a query attends to, itself included; 0: all up to itself
  int rope = 0;          // index into DecoderSpec::ropes; kNoRope: q and k are not rotated
  double scale = 0;      // of scores; 0: 1 / sqrt(head_dim)
  double score_cap = 0;  // scores s become cap * tanh(s / cap); 0: no cap
  double clip = 0;       // q, k and v are bounded: of at most this size; 0: they are not
  bool clips_after_norms = false;
  // ALiBi's slopes (ForwardBuilder::Heads); empty: none.
  std::vector<double> slopes;
  bool rounded_slopes = false;
  std::string sink;  // the parameter, in `path`, of a logit per head that joins the softmax without a value
  bool sinks_begin_at_zero = false;  // in training from scratch

  bool qkv_bias = false, out_bias = false;
  bool fused_qkv = false;  // q, k and v are stored in one tensor
  // In that tensor, each KV head has its rows of q, k and v behind each other; else all of q comes first, then k, v.
  bool qkv_by_kv_head = false;
  // Not 0: that tensor was cut for so many devices, whose parts have their rows of q, then of v, then of k (CodeGen).
  int64_t qvk_parts = 0;

  bool v_is_k = false;   // there is no v: it is what the product of k gives
  bool norms_v = false;  // over each head, without a weight
  // The name under which its keys and values are there for later blocks (model/shared_values.h); "": for none.
  std::string publishes;
  // The name of keys and values that it takes: it has no k and v. "": its own.
  std::string takes;

  // q_proj is twice as wide: each head has its rows of q, then of a gate, whose logistic function scales the head's
  // output.
  bool gated = false;
  // A module with a number per head, whose logistic function scales the head's output; "": none.
  std::string head_gate;

  // The norm of q and k before the rotary embedding, or after it: over each head, with scales that all share or with
  // scales of its own (a layer norm without shift), or over all heads together.
  enum class QkNorm : uint8_t { kNone, kHeads, kEachHead, kWhole } qk_norm = QkNorm::kNone;
  bool norms_after_rope = false;
  NormSpec norm;

  // Modules: `path` in the block, the others in `path`.
  std::string path = "self_attn.";
  std::string q = "q_proj", k = "k_proj", v = "v_proj", qkv = "qkv_proj", out = "o_proj";
  std::string q_norm = "q_norm", k_norm = "k_norm";
  std::string head_norms;  // of kEachHead: in q_norm and k_norm, the list of a module for each head; "": one has all

  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
};

// From the block's input, normed, to what joins the residual sum: [T, D] both.
ValueId BuildAttention(ForwardBuilder& f, const AttentionSpec& spec, const BlockContext& block, ValueId x_TD);

}  // namespace temper
