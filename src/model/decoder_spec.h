// DecoderSpec: the decoder-only transformer of all families, as data. decoder.h reads a config.json into it and makes
// the model; gguf_description.h says how llama.cpp has it.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/feed_forward/experts.h"
#include "model/feed_forward/mlp.h"
#include "model/gguf_architecture.h"
#include "model/mixers/attention.h"
#include "model/mixers/attention_beside_mamba2.h"
#include "model/mixers/gated_delta.h"
#include "model/mixers/latent_attention.h"
#include "model/mixers/mamba2.h"
#include "model/mixers/short_conv.h"
#include "model/model.h"
#include "model/norm.h"
#include "model/per_layer_input.h"
#include "model/rope.h"

namespace temper {

// A new kind is an alternative here, with its file, and an overload of Build in decoder.cc.
using Mixer = std::variant<AttentionSpec, LatentAttentionSpec, ShortConvSpec, GatedDeltaSpec, Mamba2Spec,
                           AttentionBesideMamba2Spec, MlpSpec>;
// None in blocks of one part, which is then their mixer, be it an MLP (Nemotron-H).
using FeedForward = std::variant<MlpSpec, ExpertsSpec, std::monostate>;

// Names of a block's norms: before mixer and feed-forward (pre-norm), and on their outputs (post-norm); "": none.
struct BlockNorms {
  NormSpec spec;
  std::string mixer = "input_layernorm", feed_forward = "post_attention_layernorm";
  std::string mixer_out, feed_forward_out;
  bool in_sums = false;     // sums go on from what `mixer` and `feed_forward` give, not from what they take
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
  std::string factor;         // of the block: a number of the files by which its result is multiplied; "": none
  // In training: dropout on the outputs of both parts, before the residual sum.
  double mixer_out_dropout = 0, feed_forward_out_dropout = 0;
  double parts_dropout = 0;  // of parallel parts: on the sum of both outputs
  friend bool operator==(const DecoderBlock&, const DecoderBlock&) = default;
};

// Names of a model's parts, as current transformers has them; "": the model has no such part.
struct DecoderNames {
  std::string prefix = "model.";  // of everything except the head; transformers' base_model_prefix comes first
  std::string embedding = "embed_tokens", positions, blocks = "layers.", final_norm = "norm";
  std::string embedding_norm;    // of what the first block reads
  std::string head = "lm_head";  // the module
  std::string head_in_files;     // "": as the module
  // Under a head of classes: what the head of words is called that the table was tied to. Some files have the table
  // under that name alone.
  std::vector<std::string> tied_heads;
  std::string other_prefix;  // in the place of `prefix` in some files; "": in none
  // Parts of names that files have otherwise, applied in this order: what stands here, what files have.
  std::vector<std::pair<std::string, std::string>> in_files;
};

// A dense layer, an activation and a norm between the last norm and the head: "<module>.dense", "<module>.norm".
struct HeadLayer {
  std::string module;  // "": there is none
  bool bias = false;
  Activation activation = Activation::kGelu;
};

struct DecoderSpec {
  ModelFacts facts;  // MakeDecoder fills in kinds and heads
  int64_t hidden = 0;
  std::vector<DecoderBlock> blocks;
  DecoderNames names;
  NormSpec norm;  // behind the last block
  HeadLayer head_layer;
  std::vector<RopeSpec> ropes;
  int64_t position_offset = 0;  // row of position 0 in a table of learned positions
  bool transposed = false;      // files store all weights but the head's as [in, out]
  // Positions as sines and cosines of these frequencies, counted from `sinusoid_shift`; empty: none.
  std::vector<double> sinusoids;
  int64_t sinusoid_shift = 0;
  double embedding_scale = 1, logit_scale = 1;
  // The embedding's module scales, so that NEFTune's noise is not scaled; its factor has the type of weights (Gemma).
  bool scales_in_embedding = false, rounds_embedding_scale = false;
  bool head_bias = false;        // logits are shifted by the bias of the head's module
  double logit_cap = 0;          // logits l become cap * tanh(l / cap); 0: no cap
  PerLayerSpec per_layer;        // what each block adds of its own to a token
  double embedding_dropout = 0;  // in training, on the input of the first block
  // From scratch: smaller initial weights in the last products of these parts of blocks.
  enum class InitByDepth : uint8_t { kNone, kMixers, kBoth } init_by_depth = InitByDepth::kNone;
  GgufArchitecture gguf;  // how llama.cpp computes it
  // Rows of the embedding table, of which the first are the vocabulary, which the head has; 0: these alone. No token of
  // another row is read or predicted.
  int64_t embedding_rows = 0;
  int64_t embed = 0;  // width of the embedding table; `project_in` and `project_out` adapt it to hidden. 0: hidden

  // Parts of that kind in all blocks, in order; attention beside Mamba-2, too.
  std::vector<AttentionSpec*> attentions();
  std::vector<MlpSpec*> mlps();
  // Makes all norms of that kind: of blocks, of q and k, behind the last block.
  void SetNorm(NormKind kind) { SetNorm({kind, norm.eps}); }
  void SetNorm(NormSpec spec);
  // Gives all blocks norms of these names, and leaves their kind and place as they are.
  void NameNorms(const BlockNorms& names);
};

}  // namespace temper
