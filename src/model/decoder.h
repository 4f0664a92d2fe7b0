// Decoder: the decoder-only transformer of all families, as data: norms, rotary or learned positions, grouped-query
// attention, an MLP. The file of a family reads its config.json into a DecoderSpec, which has a field for each
// difference between families.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/rope.h"

namespace temper {

inline constexpr int kNoRope = -1;

// The settings in which blocks of a model may differ. Equal blocks are of one kind.
struct DecoderBlock {
  int64_t window = 0;  // tokens that a query attends to, itself included; 0: all up to itself
  int rope = 0;        // index into DecoderSpec::ropes; kNoRope: q and k are not rotated
  double scale = 0;    // of attention scores; 0: 1 / sqrt(head_dim)
  friend bool operator==(const DecoderBlock&, const DecoderBlock&) = default;
};

// Names of a model's parts, as current transformers has them; "": the model has no such part.
struct DecoderNames {
  std::string prefix = "model.";  // of everything except the head; transformers' base_model_prefix comes first
  std::string embedding = "embed_tokens", positions, blocks = "layers.", final_norm = "norm";
  // In a block. `up` and `down` of the MLP; gated MLPs also have gate_proj, or gate_up_proj for both.
  std::string attention = "self_attn.", fused_qkv = "qkv_proj", attention_out = "o_proj";
  std::string q_norm = "q_norm", k_norm = "k_norm";
  std::string up = "mlp.up_proj", down = "mlp.down_proj";
  std::string head = "lm_head";  // the module
  std::string head_in_files;     // "": as the module
  // Parts of names that files have otherwise, applied in this order: what stands here, what files have.
  std::vector<std::pair<std::string, std::string>> in_files;
};

struct DecoderSpec {
  ModelFacts facts;  // MakeDecoder fills in kinds and heads
  int64_t hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<DecoderBlock> blocks;
  DecoderNames names;
  // ...PlusOne scale by 1 + w. kLayerNoShift has a weight but no bias; ...Plain have neither.
  enum class Norm : uint8_t { kRms, kRmsPlusOne, kRmsPlain, kLayer, kLayerPlusOne, kLayerNoShift, kLayerPlain };
  Norm norm = Norm::kRms;
  double norm_eps = 0;
  std::vector<RopeSpec> ropes;
  int64_t position_offset = 0;  // row of position 0 in a table of learned positions
  // The MLP is down(activation(gate) * up) if gated, else down(activation(up)). kSilu is only gated, kRelu and
  // its square never.
  enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu, kReluSquared } activation = Activation::kSilu;
  bool gated = true;
  bool qkv_bias = false, attention_out_bias = false, mlp_bias = false;
  bool fused_qkv = false, fused_gate_up = false;  // stored in one tensor
  // In that tensor, each KV head has its rows of q, k and v behind each other; else all of q comes first, then k, v.
  bool qkv_by_kv_head = false;
  bool transposed = false;  // files store all weights but the head's as [in, out]
  // Norm of q and k before the rotary embedding, or after it: over each head, or over all heads together.
  enum class QkNorm : uint8_t { kNone, kHeads, kWhole } qk_norm = QkNorm::kNone;
  bool norms_after_rope = false;
  bool norms_embedding = false;  // what the first block reads is normed, without a weight
  // Names of a block's norms in the file: before attention and MLP (pre-norm), and on their outputs (post-norm); "":
  // none.
  std::string attention_norm = "input_layernorm", mlp_norm = "post_attention_layernorm";
  std::string attention_out_norm, mlp_out_norm;
  // attention_norm and mlp_norm come after the residual sums, as in the first transformers.
  bool norms_after_sums = false;
  // Attention and MLP both read the block's input. If there is no mlp_norm, the MLP reads the output of attention_norm.
  bool parallel = false;
  // Factors on embeddings, on the outputs of attention and MLP, on logits.
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  // The embedding's module scales, so that NEFTune's noise is not scaled; its factor has the type of weights (Gemma).
  bool scales_in_embedding = false, rounds_embedding_scale = false;
  double score_cap = 0, logit_cap = 0;  // x becomes cap * tanh(x / cap); 0: no cap
  // In training: dropout on the outputs of attention and MLP, before the residual sum; on what the MLP's last product
  // reads; on the input of the first block.
  double attention_out_dropout = 0, mlp_out_dropout = 0, mlp_dropout = 0, embedding_dropout = 0;
  bool init_by_depth = false;  // from scratch: smaller initial weights in the last products of attention and MLP
  int64_t embed = 0;  // width of the embedding table; `project_in` and `project_out` adapt it to hidden. 0: hidden
};

// Names of config.json's keys for sizes and numbers.
struct DecoderKeys {
  const char *hidden = "hidden_size", *ffn = "intermediate_size", *blocks = "num_hidden_layers";
  const char *heads = "num_attention_heads", *max_positions = "max_position_embeddings";
  const char *norm_eps = "rms_norm_eps", *activation = "hidden_act", *initializer_range = "initializer_range";
  const char* attention_dropout = "attention_dropout";
};

// Values of keys that a config.json omits: the defaults of the family's class in transformers.
struct DecoderDefaults {
  DecoderKeys keys = {};
  int64_t vocab = 0, hidden = 0, ffn = 0, blocks = 0, heads = 0, max_positions = 0;
  int64_t kv_heads = 0;  // 0: heads
  int64_t head_dim = 0;  // 0: hidden / heads
  double norm_eps = 1e-6, attention_dropout = 0, initializer_range = 0.02;
  const char* activation = "silu";
  bool gated = true;  // no key: a fact of the class
  bool tied = false;
  bool plain_heads = false;  // the class has neither num_key_value_heads nor head_dim
  bool rotary = true;
  RopeDefaults rope = {};
};

// Reads what all families share: sizes (checked against bounds), identical blocks, norms, activation, the rotary
// embedding (of layers with full attention), the tied head.
Result<DecoderSpec> ReadDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                const std::string& where);

// For classes that cut heads by the sizes and use head_dim elsewhere: refuses a file whose head_dim is another.
Status ExpectPlainHeadDim(const Json& config, const DecoderSpec& spec, const std::string& where);

// `sliding_window`, or `fallback` if the file lacks the key; 0 (null in the file): none.
Result<int64_t> ReadWindow(const Json& config, int64_t fallback, const std::string& where);
// Gives `window` to the blocks with "sliding_attention" in `layer_types`. Without that list, to the blocks for which
// `slides` returns true.
Status SetWindows(const Json& config, int64_t window, const std::function<bool(int64_t block)>& slides,
                  const std::string& where, DecoderSpec* spec);

std::unique_ptr<Model> MakeDecoder(DecoderSpec spec);

}  // namespace temper
