// Decoder: the decoder-only transformer that the families are, as data: norms, rotary or learned positions,
// grouped-query attention, an MLP. The file of a family reads its config.json into a DecoderSpec; where a family
// computes something different, the spec has a field.
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
  int rope = 0;        // of DecoderSpec::ropes; kNoRope: q and k do not turn
  double scale = 0;    // of scores; 0: 1 / sqrt(head_dim)
  friend bool operator==(const DecoderBlock&, const DecoderBlock&) = default;
};

// Where the parts of a model stand in its files, as current transformers names them; "": there is none.
struct DecoderNames {
  std::string prefix = "model.";  // of all but the head
  std::string embedding = "embed_tokens", positions, blocks = "layers.", final_norm = "norm";
  // In a block. `up` and `down` of the MLP; gated ones have gate_proj and gate_up_proj beside them.
  std::string attention = "self_attn.", fused_qkv = "qkv_proj", attention_out = "o_proj";
  std::string up = "mlp.up_proj", down = "mlp.down_proj";
  std::string old_prefix;        // what `prefix` begins with, and names in some files do not
  std::string head = "lm_head";  // as files name it; the module is lm_head
};

struct DecoderSpec {
  ModelFacts facts;  // MakeDecoder fills in kinds and heads
  int64_t hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<DecoderBlock> blocks;
  DecoderNames names;
  // A layer norm without shift: with a weight alone.
  enum class Norm : uint8_t { kRms, kLayer, kLayerNoShift, kLayerPlain } norm = Norm::kRms;
  double norm_eps = 0;
  std::vector<RopeSpec> ropes;
  int64_t position_offset = 0;  // row of position 0 in a table of learned positions
  bool qkv_bias = false, attention_out_bias = false, mlp_bias = false;
  bool fused_qkv = false, fused_gate_up = false;  // files hold them in one tensor
  bool qkv_by_head = false;                       // there, each head's rows of q, k and v follow each other
  bool transposed = false;                        // files store the weights of all but the head in x out
  // Silu is that of gated MLPs, down(silu(gate) * up), the others those of down(activation(up)).
  enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu } activation = Activation::kSilu;
  // q and k are normed before they are rotated: each head by itself, or all of them as one.
  enum class QkNorm : uint8_t { kNone, kHeads, kWhole } qk_norm = QkNorm::kNone;
  // The norms of a block, as files name them: of what attention and MLP read, and of what they add; "": none.
  std::string attention_norm = "input_layernorm", mlp_norm = "post_attention_layernorm";
  std::string attention_out_norm, mlp_out_norm;
  // attention_norm and mlp_norm are of the sums that attention and MLP have been added to.
  bool norms_after_sums = false;
  // Attention and MLP both read the block's input, and are added to it; without an mlp_norm the MLP reads what
  // attention reads.
  bool parallel = false;
  // In training: of what attention and MLP add to the residual stream; of what the first block reads.
  double dropout = 0, embedding_dropout = 0;
  double logit_scale = 1;
  bool init_by_depth = false;  // from scratch: the weights of what attention and MLP add
  int64_t embed = 0;  // width of the embedding, which `project_in` and `project_out` fit to the blocks; 0: hidden
  bool tied = false;  // the head is the embedding
};

// What config.json calls the sizes and numbers.
struct DecoderKeys {
  const char *hidden = "hidden_size", *ffn = "intermediate_size", *blocks = "num_hidden_layers";
  const char *heads = "num_attention_heads", *max_positions = "max_position_embeddings";
  const char *norm_eps = "rms_norm_eps", *activation = "hidden_act", *initializer_range = "initializer_range";
  const char* attention_dropout = "attention_dropout";
};

// Values of keys that a config.json leaves out: those of the family's class in transformers.
struct DecoderDefaults {
  DecoderKeys keys = {};
  int64_t vocab = 0, hidden = 0, ffn = 0, blocks = 0, heads = 0, max_positions = 0;
  int64_t kv_heads = 0;  // 0: heads
  int64_t head_dim = 0;  // 0: hidden / heads
  double norm_eps = 1e-6, attention_dropout = 0, initializer_range = 0.02;
  const char* activation = "silu";  // that of a gated MLP; any other: the MLP is not gated
  bool tied = false;
  bool plain_heads = false;  // the class knows no KV heads and no head_dim but hidden / heads
  bool rotary = true;
  RopeDefaults rope = {};
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
