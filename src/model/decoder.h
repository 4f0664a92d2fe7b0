// Decoder: the decoder-only transformer of most families, as data: RMS norms, rotary positions, grouped-query
// attention, a gated MLP. The file of a family reads its config.json into a DecoderSpec, which has a field for each
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
  int rope = 0;        // index into DecoderSpec::ropes; kNoRope: positions are not encoded
  friend bool operator==(const DecoderBlock&, const DecoderBlock&) = default;
};

struct DecoderSpec {
  ModelFacts facts;  // MakeDecoder fills in kinds and heads
  int64_t hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<DecoderBlock> blocks;
  double rms_norm_eps = 0;
  std::vector<RopeSpec> ropes;
  bool qkv_bias = false, attention_out_bias = false, mlp_bias = false;
  bool fused_qkv = false, fused_gate_up = false;  // stored in one tensor
  // Norm of q and k before the rotary embedding: over each head, or over all heads together.
  enum class QkNorm : uint8_t { kNone, kHeads, kWhole } qk_norm = QkNorm::kNone;
  // Names of a block's norms in the file: before attention and
  // MLP (pre-norm), and on their outputs (post-norm); "": none.
  std::string attention_norm = "input_layernorm", mlp_norm = "post_attention_layernorm";
  std::string attention_out_norm, mlp_out_norm;
  double dropout = 0;  // in training, on the outputs of attention and MLP, before the residual sum
  bool tied = false;   // the head uses the embedding table
};

// Values of keys that a config.json omits: the defaults of the family's class in transformers.
struct DecoderDefaults {
  int64_t vocab = 0, hidden = 0, ffn = 0, blocks = 0, heads = 0, max_positions = 0;
  int64_t kv_heads = 0;  // 0: heads
  int64_t head_dim = 0;  // 0: hidden / heads
  double rms_norm_eps = 1e-6, attention_dropout = 0;
  bool tied = false;
  RopeDefaults rope;
};

// Reads what all families share: sizes (checked against bounds), identical blocks, norms, activation, the rotary
// embedding (of layers with full attention), the tied head.
Result<DecoderSpec> ReadDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                const std::string& where);

// `sliding_window`, or `fallback` if the file lacks the key; 0 (null in the file): none.
Result<int64_t> ReadWindow(const Json& config, int64_t fallback, const std::string& where);
// Gives `window` to the blocks with "sliding_attention" in `layer_types`.
// Without that list, to the blocks for which `slides` returns true.
Status SetWindows(const Json& config, int64_t window, const std::function<bool(int64_t block)>& slides,
                  const std::string& where, DecoderSpec* spec);

std::unique_ptr<Model> MakeDecoder(DecoderSpec spec);

}  // namespace temper
