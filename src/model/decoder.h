// Decoder: the decoder-only transformer that most families are, as data: RMS norms, rotary positions, grouped-query
// attention, a gated MLP. The file of a family reads its config.json into a DecoderSpec; where a family computes
// something different, the spec has a field.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/rope.h"

namespace temper {

inline constexpr int kNoRope = -1;

// What one block computes beyond what all share. Equal blocks are of one kind.
struct DecoderBlock {
  int64_t window = 0;  // tokens that a query sees, itself included; 0: all up to itself
  int rope = 0;        // of DecoderSpec::ropes; kNoRope: positions are not encoded
  friend bool operator==(const DecoderBlock&, const DecoderBlock&) = default;
};

struct DecoderSpec {
  ModelFacts facts;  // MakeDecoder fills in kinds and heads
  int64_t hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<DecoderBlock> blocks;
  double rms_norm_eps = 0;
  bool norm_plus_one = false;  // all norms scale by 1 + w
  std::vector<RopeSpec> ropes;
  GraphBuilder::Gate gate = GraphBuilder::Gate::kSilu;
  bool qkv_bias = false, attention_out_bias = false, mlp_bias = false;
  bool fused_qkv = false, fused_gate_up = false;  // files hold them in one tensor
  // q and k are normed before they are rotated: each head by itself, or all of them as one.
  enum class QkNorm : uint8_t { kNone, kHeads, kWhole } qk_norm = QkNorm::kNone;
  // The norms of a block, as files name them: of what attention and MLP read, and of what they add; "": none.
  std::string attention_norm = "input_layernorm", mlp_norm = "post_attention_layernorm";
  std::string attention_out_norm, mlp_out_norm;
  // Embeddings are multiplied by embedding_scale, which Gemma rounds to the type of weights; what attention and MLP add
  // by residual_scale; logits by logit_scale; scores by attention_scale (0: head_dim^-1/2).
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1, attention_scale = 0;
  bool rounds_embedding_scale = false;
  double score_cap = 0, logit_cap = 0;  // x becomes cap * tanh(x / cap); 0: none
  double dropout = 0;                   // in training, of what attention and MLP add to the residual stream
};

// Values of keys that a config.json leaves out: those of the family's class in transformers.
struct DecoderDefaults {
  int64_t vocab = 0, hidden = 0, ffn = 0, blocks = 0, heads = 0, max_positions = 0;
  int64_t kv_heads = 0;  // 0: heads
  int64_t head_dim = 0;  // 0: hidden / heads
  double rms_norm_eps = 1e-6, attention_dropout = 0;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  bool tied = false;
  RopeDefaults rope;
};

// What all families share: sizes (bounded), blocks that are alike, norms, activation, the rotary embedding (of layers
// of full attention), the tied head.
Result<DecoderSpec> ReadDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                const std::string& where);

// `sliding_window`, `fallback` where the file does not have it; 0 (null in the file): none.
Result<int64_t> ReadWindow(const Json& config, int64_t fallback, const std::string& where);
// Gives `window` to the blocks that `layer_types` calls sliding, or, where the file has no such list, to those of which
// `slides` is true.
Status SetWindows(const Json& config, int64_t window, const std::function<bool(int64_t block)>& slides,
                  const std::string& where, DecoderSpec* spec);

std::unique_ptr<Model> MakeDecoder(DecoderSpec spec);

}  // namespace temper
