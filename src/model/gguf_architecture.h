// How llama.cpp computes a family: GGUF files name an architecture, which fixes everything but sizes. A family's reader
// names the architecture and says what of it is not as usual; gguf_description.h writes down the model's tensors and
// keys, and refuses what the architecture does not compute. Source: llama.cpp, conversion/*.py and src/models/*.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "format/gguf/gguf_writer.h"
#include "model/feed_forward/mlp.h"

namespace temper {

struct GgufArchitecture {
  const char* name = nullptr;  // nullptr: llama.cpp has none
  bool interleaved = false;  // rotary embeddings turn neighbours: rows of q and k are reordered where files have halves
  Activation activation = Activation::kSilu;

  // What it reads if it is there.
  bool out_bias = false, mlp_bias = false;  // biases of attention's output and of the MLP
  bool windows = false;                     // sliding windows, in the layers that the file lists
  bool betas = false;                       // the bounds of YaRN (beta_fast, beta_slow)
  bool scales_queries = false;              // queries grow with their position, from YaRN's context on
  bool factors = false;                     // a factor for each frequency: rotary scaling of Llama 3 and longrope
  bool own_head = true;                     // a head beside the embedding
  bool needs_head = false;                  // a head even if it is the embedding
  // It computes the embeddings, attention's scores and the logits with these, whatever they are: a family that has any
  // says with which keys, or that the architecture has it.
  bool scales_embedding = false, scales_residual = false, scales_logits = false;
  double score_scale = 0;  // of scores; 0: 1 / sqrt(head_dim)
  bool score_cap = false, logit_cap = false;
  bool clips = false;     // q, k and v may be bounded
  bool alibi = false;     // slopes of each head, a bias of 8 at most, in the place of positions
  bool parallel = false;  // attention and MLP side by side
  enum class Rope : uint8_t { kAll, kThreeOfFour, kWindowed } rope = Rope::kAll;  // layers with a rotary embedding
  bool fused_qkv = false, fused_gate_up = false;
  bool any_head_dim = false;  // heads times their width may differ from the width of the model
  // Its names for the norms before both parts.
  const char *attn_norm = "attn_norm", *ffn_norm = "ffn_norm";
  const char* embedding_norm = nullptr;  // of what the first block reads; nullptr: it has none
  bool normalises_experts = false;       // the weights of a token's experts add up to 1

  // What mixes tokens in layers without attention, or beside it.
  enum class Mixer : uint8_t { kNone, kShortConv, kGatedDelta, kMamba2, kBesideMamba2, kLatent } mixer = Mixer::kNone;
  bool tiled_values =
      false;              // of a gated delta net: heads of values in turn by key head, where files have them grouped
  bool one_part = false;  // a block is a mixer or an MLP
  bool gated_attention = false;
  bool folded_scales = false;  // no scale is computed: all are part of the weights
  bool dense_first = false;    // the first layers have an MLP in the place of experts
  // Weights of experts by what the file says: the logistic function, a scale, groups, a bias of the choice.
  bool routes = false;
  bool shared_experts = false;  // that are as wide as a number of the others, and counted
  const char* final_norm = "output_norm";
  bool bare_ffn_norm = false;  // that norm's name has no ".weight"
  bool same_kv_heads = false;  // norms of q and k over all heads are of one width

  std::vector<std::pair<const char*, GgufValue>> keys = {};  // of this model, behind "<name>."
  // Keys of the file whose values are numbers of the model's files, one of each block, and their names in a block.
  std::vector<std::pair<const char*, std::string>> numbers = {};
  std::string missing = {};  // what of this model the architecture does not compute; "": nothing
};

}  // namespace temper
