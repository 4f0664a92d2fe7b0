// Decoder: the decoder-only transformer of all families, as data: embeddings, blocks, a head. A block mixes tokens
// (attention), then feeds each forward (an MLP, or experts), both in a frame of norms and residual sums; blocks of a
// model may differ in everything. The file of a family reads its config.json into a DecoderSpec.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/feed_forward/experts.h"
#include "model/feed_forward/mlp.h"
#include "model/mixers/attention.h"
#include "model/mixers/gated_delta.h"
#include "model/mixers/mamba2.h"
#include "model/mixers/short_conv.h"
#include "model/model.h"
#include "model/norm.h"
#include "model/rope.h"

namespace temper {

// A new kind is an alternative here, with its file, and an overload of Build in decoder.cc.
using Mixer = std::variant<AttentionSpec, ShortConvSpec, GatedDeltaSpec, Mamba2Spec, MlpSpec>;
// None in blocks of one part, which is then their mixer, be it an MLP (Nemotron-H).
using FeedForward = std::variant<MlpSpec, ExpertsSpec, std::monostate>;

// Names of a block's norms: before mixer and feed-forward (pre-norm), and on their outputs (post-norm); "": none.
struct BlockNorms {
  NormSpec spec;
  std::string mixer = "input_layernorm", feed_forward = "post_attention_layernorm";
  std::string mixer_out, feed_forward_out;
  bool after_sums = false;  // `mixer` and `feed_forward` come after the residual sums, as in the first transformers
  friend bool operator==(const BlockNorms&, const BlockNorms&) = default;
};

// Equal blocks are of one kind (ModelFacts::kinds).
struct DecoderBlock {
  BlockNorms norms;
  Mixer mixer;
  FeedForward feed_forward;
  // Both parts read the block's input. If there is no norms.feed_forward, that part reads the output of norms.mixer.
  bool parallel = false;
  double residual_scale = 1;  // of the outputs of both parts
  // In training: dropout on the outputs of both parts, before the residual sum.
  double mixer_out_dropout = 0, feed_forward_out_dropout = 0;
  friend bool operator==(const DecoderBlock&, const DecoderBlock&) = default;
};

// Names of a model's parts, as current transformers has them; "": the model has no such part.
struct DecoderNames {
  std::string prefix = "model.";  // of everything except the head; transformers' base_model_prefix comes first
  std::string embedding = "embed_tokens", positions, blocks = "layers.", final_norm = "norm";
  std::string head = "lm_head";  // the module
  std::string head_in_files;     // "": as the module
  std::string other_prefix;      // in the place of `prefix` in some files; "": in none
  // Parts of names that files have otherwise, applied in this order: what stands here, what files have.
  std::vector<std::pair<std::string, std::string>> in_files;
};

struct DecoderSpec {
  ModelFacts facts;  // MakeDecoder fills in kinds and heads
  int64_t hidden = 0;
  std::vector<DecoderBlock> blocks;
  DecoderNames names;
  NormSpec norm;  // behind the last block
  std::vector<RopeSpec> ropes;
  int64_t position_offset = 0;   // row of position 0 in a table of learned positions
  bool transposed = false;       // files store all weights but the head's as [in, out]
  bool norms_embedding = false;  // what the first block reads is normed, without a weight
  double embedding_scale = 1, logit_scale = 1;
  // The embedding's module scales, so that NEFTune's noise is not scaled; its factor has the type of weights (Gemma).
  bool scales_in_embedding = false, rounds_embedding_scale = false;
  bool head_bias = false;        // logits are shifted by the bias of the head's module
  double logit_cap = 0;          // logits l become cap * tanh(l / cap); 0: no cap
  double embedding_dropout = 0;  // in training, on the input of the first block
  bool init_by_depth = false;    // from scratch: smaller initial weights in the last products of both parts of blocks
  int64_t embed = 0;  // width of the embedding table; `project_in` and `project_out` adapt it to hidden. 0: hidden

  // Parts of that kind in all blocks, in order.
  std::vector<AttentionSpec*> attentions();
  std::vector<MlpSpec*> mlps();
  // Makes all norms of that kind: of blocks, of q and k, behind the last block.
  void SetNorm(NormKind kind) { SetNorm({kind, norm.eps}); }
  void SetNorm(NormSpec spec);
  // Gives all blocks norms of these names, and leaves their kind and place as they are.
  void NameNorms(const BlockNorms& names);
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
  int64_t vocab = 0, hidden = 0;
  int64_t ffn = 0;  // 0: 4 * hidden
  int64_t blocks = 0, heads = 0, max_positions = 0;
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

// Reads what all families share: sizes (checked against bounds), equal blocks of attention and MLP, norms, activation,
// the rotary embedding (of layers with full attention), the tied head.
Result<DecoderSpec> ReadDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                const std::string& where);

// The file of a class that calls keys otherwise than most, and takes both (transformers' attribute_map): pairs of the
// usual name and its own. Those of the result are its own.
Json WithOwnKeys(const Json& file, std::initializer_list<std::pair<const char*, const char*>> names);

// For classes that cut heads by the sizes and use head_dim elsewhere: refuses a file whose head_dim is another.
Status ExpectPlainHeadDim(const Json& config, const DecoderSpec& spec, const std::string& where);

// `sliding_window`, or `fallback` if the file lacks the key; 0 (null in the file): none.
Result<int64_t> ReadWindow(const Json& config, int64_t fallback, const std::string& where);
// Gives `window` to the attention of blocks with "sliding_attention" in `layer_types`. Without that list, to the blocks
// for which `slides` returns true.
Status SetWindows(const Json& config, int64_t window, const std::function<bool(int64_t block)>& slides,
                  const std::string& where, DecoderSpec* spec);

// Which layers `layer_types` lists as "full_attention"; the others must be `other`. Empty: the file has no such list.
Result<std::vector<bool>> ReadAttentionLayers(const Json& config, const char* other, size_t layers,
                                              const std::string& where);

std::unique_ptr<Model> MakeDecoder(DecoderSpec spec);

}  // namespace temper
