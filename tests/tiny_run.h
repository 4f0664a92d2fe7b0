// A tiny model with random weights, compiled and ready to run, for the
// scenarios on invariants. Header-only, shared by the folders beside it.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/philox.h"
#include "compile/run/update_groups.h"
#include "compile/train_step.h"
#include "device/communicator.h"
#include "disk/disk_tier.h"
#include "format/conversion.h"
#include "format/json.h"
#include "graph/named_ops.h"
#include "model/adapted_model.h"
#include "model/base_format.h"
#include "model/families.h"
#include "model/model.h"
#include "program/buffer_names.h"
#include "runtime/executor.h"
#include "tensor/quantise_for_test.h"

namespace temper::tiny {

template <class T>
T Must(Result<T> r) {
  TEMPER_CHECK(r.ok()) << r.status().message();
  return std::move(*r);
}
inline void Must(const Status& s) {
  TEMPER_CHECK(s.ok()) << s.message();
}

inline std::unique_ptr<Model> MakeModel(const std::string& config) {
  return Must(ModelFromConfig(Must(ParseJson(config, "config.json")), "config.json"));
}

// Heads of 16 elements in groups, three blocks; small enough that a step takes milliseconds.
inline std::string LlamaConfigText(bool tied, int64_t hidden = 64, int64_t blocks = 3, int64_t vocab = 160) {
  return fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "vocab_size": {}, "hidden_size": {}, "num_hidden_layers": {},
      "num_attention_heads": {}, "num_key_value_heads": {}, "intermediate_size": {}, "max_position_embeddings": 256,
      "tie_word_embeddings": {}}})",
      vocab, hidden, blocks, hidden / 16, hidden / 32, hidden * 2, tied);
}
// Fused projections, and a window that is shorter than a row.
inline std::string Phi3ConfigText() {
  return R"({"architectures": ["Phi3ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
      "sliding_window": 20})";
}
// Rotary embeddings that are others for documents of more than 24 tokens: another one for all, one for each length.
inline std::string LongropeConfigText() {
  return R"({"architectures": ["Phi3ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
      "original_max_position_embeddings": 24, "rope_parameters": {"rope_type": "longrope",
      "short_factor": [1, 1, 1, 1, 1, 1, 2, 2], "long_factor": [3, 3, 3, 4, 5, 6, 7, 8]}})";
}
inline std::string DynamicRopeConfigText() {
  return R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 24,
      "rope_parameters": {"rope_type": "dynamic", "factor": 4.0}})";
}
// Two kinds of blocks, norms of heads, biases; heads of one and a half tiles, wider together than the residual stream;
// rows that end within a block of nf4.
inline std::string Qwen3ConfigText() {
  return R"({"architectures": ["Qwen3ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 48, "intermediate_size": 160,
      "max_position_embeddings": 256, "attention_bias": true, "use_sliding_window": true, "sliding_window": 20,
      "max_window_layers": 1, "tie_word_embeddings": true})";
}
// Attention and MLP beside each other, with a norm each; q, k and v dealt by head.
inline std::string GptNeoXConfigText() {
  return R"({"architectures": ["GPTNeoXForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 256})";
}
// A bias of a tied head; layer norms of each head's q and k, whose parameters heads share; one norm for attention and
// MLP.
inline std::string PhiConfigText() {
  return R"({"architectures": ["PhiForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
      "qk_layernorm": true, "tie_word_embeddings": true})";
}
// Layer norms of each head's q and k with scales of its own, in a tensor a head.
inline std::string StableLmConfigText() {
  return R"({"architectures": ["StableLmForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
      "qk_layernorm": true, "use_parallel_residual": true})";
}
// With one norm for both; a window in two of three layers.
inline std::string Cohere2ConfigText() {
  return R"({"architectures": ["Cohere2ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
      "sliding_window": 20, "sliding_window_pattern": 3})";
}
// Scaled embeddings, norms by 1 + w, four in a block, GeGLU, capped scores and logits, windows in two of three blocks.
inline std::string Gemma2ConfigText() {
  return R"({"architectures": ["Gemma2ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 128,
      "max_position_embeddings": 256, "query_pre_attn_scalar": 20, "sliding_window": 20, "attn_logit_softcapping": 2.0,
      "final_logit_softcapping": 3.0})";
}
// Norms of heads in the place of capped scores, and a rotary embedding for each kind of block.
inline std::string Gemma3ConfigText() {
  return R"({"architectures": ["Gemma3ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 128,
      "max_position_embeddings": 256, "query_pre_attn_scalar": 20, "sliding_window": 20, "sliding_window_pattern": 2})";
}
// Per-layer embeddings; two blocks that make keys and values, and two, with a wider MLP, that take them; heads of two
// sizes. Norms of small sums would make rounding grow from step to step, hence the large epsilon.
inline std::string Gemma4ConfigText() {
  return R"({"architectures": ["Gemma4ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32,
      "intermediate_size": 64, "use_double_wide_mlp": true, "num_kv_shared_layers": 2, "rms_norm_eps": 0.01,
      "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 160, "max_position_embeddings": 256,
      "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
      "full_attention"]})";
}
// Learned positions, one projection for q, k and v, weights that files store transposed.
inline std::string Gpt2ConfigText() {
  return R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 160, "n_embd": 64, "n_layer": 3, "n_head": 4,
      "n_positions": 256})";
}
// Layer norms and biases, no gate, a window.
inline std::string Starcoder2ConfigText() {
  return R"({"architectures": ["Starcoder2ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
      "sliding_window": 20})";
}
// Queries, key and value of each KV head behind each other in one tensor; attention and MLP beside each other.
inline std::string FalconConfigText() {
  return R"({"architectures": ["FalconForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_kv_heads": 2, "new_decoder_architecture": true, "bias": true,
      "ffn_hidden_size": 128, "max_position_embeddings": 256})";
}
// One KV head for all queries, in their tensor.
inline std::string GptBigCodeConfigText() {
  return R"({"architectures": ["GPTBigCodeForCausalLM"], "vocab_size": 160, "n_embd": 64, "n_layer": 3, "n_head": 4,
      "n_positions": 256, "n_inner": 128})";
}
// Norms without weights, also of q and k behind the rotary embedding; squared ReLU, capped logits.
inline std::string NanoChatConfigText() {
  return R"({"architectures": ["NanoChatForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
      "final_logit_softcapping": 3.0})";
}
// A gated short convolution, attention, a convolution.
inline std::string Lfm2ConfigText() {
  return R"({"architectures": ["Lfm2ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 192, "block_multiple_of": 16,
      "max_position_embeddings": 256, "layer_types": ["conv", "full_attention", "conv"]})";
}
// A gated delta net of two value heads for each key head, gated attention, a gated delta net.
inline std::string Qwen35ConfigText() {
  return R"({"architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 128,
      "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
      "max_position_embeddings": 256, "layer_types": ["linear_attention", "full_attention", "linear_attention"]})";
}
// Mamba-2 of one group of heads, attention without a rotary embedding, Mamba-2; multipliers.
inline std::string GraniteHybridConfigText() {
  return R"({"architectures": ["GraniteMoeHybridForCausalLM"], "vocab_size": 160, "hidden_size": 64,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "shared_intermediate_size": 128,
      "max_position_embeddings": 256, "num_local_experts": 0, "mamba_n_heads": 8, "mamba_d_state": 16,
      "layer_types": ["mamba", "attention", "mamba"], "position_embedding_type": "nope", "embedding_multiplier": 3.0,
      "residual_multiplier": 0.4, "attention_multiplier": 0.2, "logits_scaling": 1.5})";
}
// Attention beside Mamba-2 of two groups of heads, with all multipliers.
inline std::string FalconH1ConfigText() {
  return R"({"architectures": ["FalconH1ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
      "mamba_d_ssm": 96, "mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 16, "embedding_multiplier": 2.0,
      "lm_head_multiplier": 0.5, "key_multiplier": 0.7, "attention_in_multiplier": 0.9, "attention_out_multiplier": 0.8,
      "ssm_in_multiplier": 1.3, "ssm_out_multiplier": 0.7, "ssm_multipliers": [0.8, 1.2, 0.9, 1.1, 0.7],
      "mlp_multipliers": [1.3, 0.6]})";
}
// Experts in two blocks of three, normed heads.
inline std::string Qwen3MoeConfigText() {
  return R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128,
      "moe_intermediate_size": 48, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": true,
      "mlp_only_layers": [1], "max_position_embeddings": 256})";
}
// Experts that files stack gate above up, beside one of all tokens, in blocks of gated delta nets and of attention.
inline std::string Qwen35MoeConfigText() {
  return R"({"architectures": ["Qwen3_5MoeForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "moe_intermediate_size": 48,
      "shared_expert_intermediate_size": 96, "num_experts": 6, "num_experts_per_tok": 2, "linear_num_key_heads": 2,
      "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
      "max_position_embeddings": 256, "layer_types": ["linear_attention", "full_attention", "linear_attention"]})";
}
// The same with projections of a delta net that are fused by key head.
inline std::string Qwen3NextConfigText() {
  return R"({"architectures": ["Qwen3NextForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "moe_intermediate_size": 48,
      "shared_expert_intermediate_size": 96, "num_experts": 6, "num_experts_per_tok": 2, "linear_num_key_heads": 2,
      "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
      "max_position_embeddings": 256, "layer_types": ["linear_attention", "full_attention"]})";
}
// Experts beside an MLP of all tokens without a gate.
inline std::string GraniteMoeSharedConfigText() {
  return R"({"architectures": ["GraniteMoeSharedForCausalLM"], "vocab_size": 160, "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
      "shared_intermediate_size": 96, "num_local_experts": 6, "num_experts_per_tok": 2, "max_position_embeddings": 256})";
}
// Experts chosen by logistic scores and a bias, of two groups, beside one of all tokens; the first block has an MLP.
inline std::string Glm4MoeConfigText() {
  return R"({"architectures": ["Glm4MoeForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 128,
      "moe_intermediate_size": 48, "n_routed_experts": 6, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
      "routed_scaling_factor": 1.5, "use_qk_norm": true, "max_position_embeddings": 256})";
}
// Latent attention; two of four groups of experts, behind a block with an MLP.
inline std::string DeepseekV3ConfigText() {
  return R"({"architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "q_lora_rank": 24, "kv_lora_rank": 40,
      "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20, "moe_intermediate_size": 48, "n_routed_experts": 8,
      "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.5, "first_k_dense_replace": 1,
      "max_position_embeddings": 256})";
}
// Latent attention alone, queries without latents, values wider than keys.
inline std::string YoutuConfigText() {
  return R"({"architectures": ["YoutuForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96, "q_lora_rank": null, "kv_lora_rank": 48,
      "qk_nope_head_dim": 12, "qk_rope_head_dim": 4, "v_head_dim": 24, "max_position_embeddings": 256})";
}
// Clamped experts with biases, sinks, a window in the first and the third block. A limit that bounds some numbers.
inline std::string GptOssConfigText() {
  return R"({"architectures": ["GptOssForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48, "num_local_experts": 6,
      "num_experts_per_tok": 2, "sliding_window": 12, "swiglu_limit": 0.2, "max_position_embeddings": 256,
      "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "truncate": false,
                          "original_max_position_embeddings": 64}})";
}
// Blocks of one part: Mamba-2 of two groups of heads, an MLP, attention, Mamba-2.
inline std::string NemotronHConfigText() {
  return R"({"architectures": ["NemotronHForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "max_position_embeddings": 256,
      "mamba_num_heads": 8, "mamba_head_dim": 12, "n_groups": 2, "ssm_state_size": 16,
      "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"]})";
}
// Multipliers.
inline std::string GraniteConfigText() {
  return R"({"architectures": ["GraniteForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256,
      "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2, "logits_scaling": 1.5})";
}
inline std::string OptConfigText(bool pre_norm, double dropout = 0) {
  return fmt::format(
      R"({{"architectures": ["OPTForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "ffn_dim": 128, "max_position_embeddings": 256, "word_embed_proj_dim": {},
      "do_layer_norm_before": {}, "dropout": {}}})",
      pre_norm ? 64 : 32, pre_norm, dropout);
}

// How the weights of linear modules and experts are kept. `values`: in the run's type, with the values that the formats
// would have.
struct Base {
  std::optional<ElementFormat> format;
  bool values = false;
  bool dequantised_first = false;             // as products of GPUs want it
  bool embedding = false;                     // the token embedding and the head are int8 rows
  std::optional<ElementFormat> experts = {};  // instead of `format`
  bool is_kept() const { return (format || embedding || experts) && !values; }
};

enum class Method { kFull, kLora, kLoraWithHead, kDora };

struct RunSpec {
  std::string config = LlamaConfigText(true);
  Method method = Method::kFull;
  std::vector<std::string> saved = {};  // with LoRA: modules_to_save, which learn half as fast and decay more
  std::vector<std::string> target_parameters = {};  // with LoRA, beside all linear modules
  DType dtype = DType::kF32;
  Base base;
  double dropout = 0;  // LoRA's; above 0 the model's own is also applied
  int64_t row = 32, rows_per_micro_batch = 1;
  int micro_batches = 4;
  Recompute recompute = Recompute::kNone;
  int recompute_blocks = kAllBlocks;
  int threads = 1;  // a team's threads spend more on waiting for each other than on so small a model
  double weight_decay = 0.01;
  const UpdateRule* optimizer = UpdateRuleOf(Op::kAdamw);
  Attributes settings = UpdateSettings(Op::kAdamw);  // of the optimizer
  double max_norm = 1.0;
  double ema_decay = 0;  // of the weights' moving average; 0: none
  bool stochastic_rounding = false;
  bool weighted = false;            // tokens have weights
  double noise = 0, smoothing = 0;  // neftune_noise_alpha, label_smoothing_factor
  double balance = 0;               // router_aux_loss_coef
  bool through_text = false;        // run the Program that its printed text reads back to
  Isa isa = DetectIsa();
  bool joins_adapters = true;  // as on CPUs
  MemorySpec memory;
  PackedOperands packing = PackedOperands::kNone;  // REQUIRES: kNone, or no limits
  std::string spill_folder;                        // of a real disk tier; "": memory simulates the disk
  // For one rank of several: rows_per_micro_batch are then those of all ranks.
  MeshSpec mesh;
  Communicator* communicator = nullptr;
  std::function<std::unique_ptr<Model>()> model;  // instead of that of `config`

  int64_t data_ranks() const { return mesh.mesh.size(DataAxes(mesh.mesh)); }
  int64_t local_rows() const { return rows_per_micro_batch / data_ranks(); }
  // Tokens of a micro-batch: of the rank's own rows, or of its part of them.
  int64_t local_tokens() const { return row * rows_per_micro_batch / mesh.mesh.size(TokenAxes(mesh.mesh)); }
};

// Random rows of packed documents: tokens, targets (some unsupervised), positions, lengths of documents and their
// starts within each micro-batch. A row's content depends only on its number. With `data_ranks` ranks of
// `rows_per_micro_batch` rows each per micro-batch, the rows of rank `data_rank`, and its part of each row;
// `supervised` counts tokens of all ranks.
struct Batch {
  std::vector<int32_t> token, target, position, document_start, document_length;
  std::vector<float> weight;   // multiples of 2^-2; 0 if target is -1
  std::vector<float> present;  // 0 of some tokens, as if they were padding: for what counts others alone
  int64_t supervised = 0;
  double weight_sum = 0;  // over all ranks

  Batch(uint64_t seed, int64_t rows, int64_t row, int64_t rows_per_micro_batch, int64_t vocab, int64_t data_ranks = 1,
        int64_t data_rank = 0, const ContextPart& part = {.row = 1}) {
    for (int64_t r = 0; r < rows; ++r) {
      const bool mine = r / rows_per_micro_batch % data_ranks == data_rank;
      const RngKey key{.seed = seed, .name_hash = static_cast<uint64_t>(r)};
      const auto begins = [&](int64_t i) { return i > 0 && UniformAt(key, static_cast<uint64_t>(4 * i)) < 0.1f; };
      int64_t start = 0, end = 0;
      for (int64_t i = 0; i < row; ++i) {
        const auto u = static_cast<uint64_t>(4 * i);
        if (i == end) {
          start = end++;
          while (end < row && !begins(end)) ++end;
        }
        const bool counts = UniformAt(key, u + 2) < 0.75f;
        supervised += counts;
        const int quarters = counts ? 1 + static_cast<int>(UniformAt(key, u + 2) * 10) : 0;
        weight_sum += 0.25 * quarters;
        if (!mine || !part.Has(i)) continue;
        weight.push_back(0.25f * static_cast<float>(quarters));
        token.push_back(static_cast<int32_t>(UniformAt(key, u + 1) * static_cast<float>(vocab)));
        target.push_back(counts ? static_cast<int32_t>(UniformAt(key, u + 3) * static_cast<float>(vocab)) : -1);
        position.push_back(static_cast<int32_t>(i - start));
        document_start.push_back(static_cast<int32_t>(r % rows_per_micro_batch * row + start));
        document_length.push_back(static_cast<int32_t>(end - start));
        present.push_back(UniformAt(key, u + 1) < 0.8f ? 1 : 0);
      }
    }
  }
};

// NormalAt of the places [0, n) under `name`, kept: drawing them takes longer than the rest of making a run, and runs
// of all kinds have the same weights.
inline std::shared_ptr<const std::vector<float>> Normals(const std::string& name, int64_t n) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const std::vector<float>>> known;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const std::vector<float>>& kept = known[name];
  if (kept == nullptr || static_cast<int64_t>(kept->size()) < n) {
    const RngKey key{.seed = 1, .name_hash = HashName(name)};
    std::vector<float> drawn;
    drawn.reserve(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) drawn.push_back(NormalAt(key, static_cast<uint64_t>(i)));
    kept = std::make_shared<const std::vector<float>>(std::move(drawn));
  }
  return kept;
}

// The disk tier of a test: memory that no kernel can access.
class MemoryStore final : public Store {
 public:
  explicit MemoryStore(Bytes size) : bytes_(static_cast<size_t>(size.v)) {}
  Bytes size() const override { return {static_cast<int64_t>(bytes_.size())}; }
  Status Read(Bytes at, std::span<std::byte> to) override {
    std::memcpy(to.data(), bytes_.data() + at.v, to.size());
    return OkStatus();
  }
  Status Write(Bytes at, std::span<const std::byte> from) override {
    std::memcpy(bytes_.data() + at.v, from.data(), from.size());
    return OkStatus();
  }

 private:
  std::vector<std::byte> bytes_;
};

// CompileGraphs without limits, with operands of products packed.
inline Result<CompiledPrograms> Packed(std::span<const RunGraph> graphs, const StepSpec& spec, PackedOperands packing) {
  TEMPER_ASSIGN_OR_RETURN(const PreparedStep step, PreparedStep::Of(graphs, spec));
  TEMPER_ASSIGN_OR_RETURN(std::vector<StepChoice> choices, step.Choices(spec.memory));
  choices.front().packing = packing;
  return FitStep(step, spec.memory, choices);
}

class TinyRun {
 public:
  explicit TinyRun(const RunSpec& spec) : spec_(spec), model_(spec.model ? spec.model() : MakeModel(spec.config)) {
    const MeshSpec& mesh = spec.mesh;
    CpuOptions options{.threads = spec.threads, .isa = spec.isa};
    if (spec.communicator) {
      options.exchange = [&spec](AxisSet axes) { return spec.communicator->MakeExchange(spec.mesh.mesh, axes); };
      collectives_ = spec.communicator->Collectives(mesh.mesh);
    }
    kernels_ = MakeCpuKernels(options);
    const int64_t tokens = spec.row * spec.rows_per_micro_batch;
    const auto forward_of = [&](bool training, bool balances) {
      return model_->Forward({.dtype = spec.dtype,
                              .tokens = tokens,
                              .row = spec.row,
                              .training = training,
                              .neftune_noise_alpha = spec.noise,
                              .counts_experts = balances,
                              .balances_experts = balances,
                              .objective_settings = {.weighted = spec.weighted, .label_smoothing = spec.smoothing}});
    };
    Graph forward = forward_of(spec.dropout > 0 || spec.noise > 0, spec.balance > 0),
          eval_forward = forward_of(false, false);
    if (spec.method == Method::kFull) {
      TrainAllWeights(&forward);
    } else {
      LoraConfig lora{.r = 4, .alpha = 6};  // a scale that bf16 rounds
      if (spec.method == Method::kLoraWithHead) lora.target_modules = ".*(q_proj|v_proj|fc1|up_proj|lm_head)";
      lora.use_dora = spec.method == Method::kDora;
      lora.modules_to_save = spec.saved;
      lora.target_parameters = spec.target_parameters;
      const AdaptedModel adapted{
          .model = *model_, .trains = Must(ResolveTrainable(*model_, lora)), .dropout = spec.dropout};
      forward = adapted.Adapted(std::move(forward), /*training=*/true);
      eval_forward = adapted.Adapted(std::move(eval_forward), /*training=*/false);
      for (const TrainedCopy& copy : adapted.trains.copies)
        forward.value(forward.FindSource(copy.name)).update_group = 1;
    }
    BaseFormat base{.modules = spec.base.format,
                    .experts = spec.base.experts ? spec.base.experts : spec.base.format,
                    .dequantised_first = spec.base.dequantised_first};
    if (spec.base.embedding) base.embedding = ElementFormat::Int8Rows();
    FindFormats(base, forward);
    if (spec.base.is_kept()) {
      for (Graph* graph : {&forward, &eval_forward}) KeepBaseAs(base, model_->modules(), graph);
    }
    const std::vector<RunGraph> graphs = TrainAndEval(forward, eval_forward);
    UpdateSpec update = {.rule = spec.optimizer,
                         .settings = spec.settings,
                         .weight_decay = spec.weight_decay,
                         .max_norm = spec.max_norm,
                         .ema_decay = spec.ema_decay,
                         .stochastic_rounding = spec.stochastic_rounding,
                         .groups = {{.lr_factor = 0.5, .weight_decay = 0.1}}};
    if (const UpdateRule* const others = spec.optimizer->others()) {
      const bool alike = others->settings.data() == spec.optimizer->settings.data();
      update.settings_of_others = alike ? spec.settings : others->Settings();
      AssignUpdateGroups({}, &forward, &update);
    }
    const StepSpec step{.micro_batches = spec.micro_batches,
                        .recompute = spec.recompute,
                        .recompute_blocks = spec.recompute_blocks,
                        .update = update,
                        .threads = spec.threads,
                        .mesh = mesh,
                        .memory = spec.memory,
                        .joins_adapters = spec.joins_adapters};
    CompiledPrograms compiled =
        Must(spec.packing == PackedOperands::kNone ? CompileGraphs(graphs, step) : Packed(graphs, step, spec.packing));
    programs_ = compiled.programs.all();
    chosen_ = std::move(compiled.memory);
    if (spec.through_text) {
      for (Program& p : programs_) p = Must(ReadProgram(PrintProgram(p)));
    }
    arena_ = spec.communicator ? Arena::Over(Must(spec.communicator->AllocateArena(programs_[0].arena_bytes)))
                               : Must(Arena::Create(programs_[0].arena_bytes));
    host_ = Must(Arena::Create(programs_[0].host.bytes));
    const Bytes spill = programs_[0].disk.bytes;
    if (spec.spill_folder.empty()) {
      disk_ = std::make_unique<MemoryStore>(spill);
    } else {
      disk_ = Must(DiskTier::Create(PosixEnv(), {spec.spill_folder, spill, {}}));
    }
    const FarTiers far{.host = host_.get(), .disk = disk_.get()};
    train_ = Must(Executor::Create(programs_[0], *arena_, *kernels_, collectives_.get(), far));
    eval_ = Must(Executor::Create(programs_[1], *arena_, *kernels_, collectives_.get(), far));
    for (const Buffer& b : train().buffers) {
      if (b.role == Role::kWeight || b.role == Role::kAdapter) Randomise(b);
    }
    losses_.resize(static_cast<size_t>(spec.local_tokens() * spec.micro_batches));
    rng_.resize(static_cast<size_t>(kNumRngWords * spec.micro_batches));
    data_ranks_ = spec.data_ranks();
    data_rank_ = data_rank();
    scalars_ = Find(kScalarsBuffer);
    clip_ = Find(kClipBuffer);
    aux_losses_.resize(static_cast<size_t>(spec.micro_batches));
    seeds_.resize(aux_losses_.size());
    if (const View load = Find(kExpertLoadOutput); load.data != nullptr) {
      loads_.resize(aux_losses_.size() * static_cast<size_t>(load.type.shape.elements()));
    }
    for (const char* name : {"token", "target", "position", "document_start", "rng", "loss", "weight",
                             "document_length", "present", kBalanceSeedInput, kBalanceOutput, kExpertLoadOutput}) {
      train_buffers_.push_back(train().FindBuffer(name));
      eval_buffers_.push_back(eval().FindBuffer(name));
    }
  }

  const Program& train() const { return programs_[0]; }
  const Program& eval() const { return programs_[1]; }
  const ChosenMemory& chosen() const { return chosen_; }
  const std::map<std::string, ElementFormat>& formats() const { return formats_; }
  const Arena& arena() const { return *arena_; }
  const Arena& host() const { return *host_; }
  const Store& disk() const { return *disk_; }
  Executor& executor() { return *train_; }
  Executor& eval_executor() { return *eval_; }
  int64_t vocab() const { return model_->facts().vocab; }

  Batch MakeBatch(uint64_t seed) const {
    return Batch(seed, spec_.rows_per_micro_batch * spec_.micro_batches, spec_.row, spec_.local_rows(), vocab(),
                 spec_.data_ranks(), data_rank(), ContextPartOf(spec_.mesh.mesh, spec_.mesh.rank, spec_.row));
  }

  // This rank's number among those with their own rows.
  int64_t data_rank() const { return spec_.mesh.mesh.IndexIn(DataAxes(spec_.mesh.mesh), spec_.mesh.rank); }

  // One optimizer step; the losses of all tokens are in losses(). Allocates nothing.
  void Step(Batch& batch, double learning_rate = 1e-2) {
    ++step_;
    const auto t = static_cast<double>(step_);
    const std::span<double> scalars = scalars_.as<double>();
    scalars[kScalarLearningRate] = learning_rate;
    scalars[kScalarBiasCorrection1] = 1 - std::pow(0.9, t);
    scalars[kScalarBiasCorrection2] = 1 - std::pow(0.999, t);
    scalars[kScalarTokenCount] = spec_.weighted ? batch.weight_sum : static_cast<double>(batch.supervised);
    if (spec_.stochastic_rounding) {
      const std::span<int64_t> rng = Find(kRoundingBuffer).as<int64_t>();
      rng[kRngSeed] = 42;
      rng[kRngStep] = step_ - 1;
      rng[kRngFirstToken] = 0;
    }
    if (spec_.ema_decay > 0) Find(kAverageShareBuffer).as<double>()[0] = step_ == 1 ? 1 : 1 - spec_.ema_decay;
    for (int m = 0; m < spec_.micro_batches; ++m) {
      rng_[static_cast<size_t>(m * kNumRngWords + kRngSeed)] = 42;
      rng_[static_cast<size_t>(m * kNumRngWords + kRngStep)] = step_ - 1;
      rng_[static_cast<size_t>(m * kNumRngWords + kRngFirstToken)] =
          (m * data_ranks_ + data_rank_) * spec_.row * spec_.rows_per_micro_batch / data_ranks_;
    }
    std::fill(seeds_.begin(), seeds_.end(),
              static_cast<float>(spec_.balance * scalars[kScalarTokenCount] / spec_.micro_batches));
    Run(*train_, batch, train_buffers_);
  }
  void Evaluate(Batch& batch) { Run(*eval_, batch, eval_buffers_); }

  const std::vector<float>& losses() const { return losses_; }
  // Of all ranks.
  double loss_sum() const {
    double sum = 0;
    for (float x : losses_) sum += x;
    if (spec_.communicator) {
      Must(spec_.communicator->AllReduceSum({&sum, 1}));
      // Ranks with the same tokens count once; in a pipeline only the last stage has losses.
      const Mesh& mesh = spec_.mesh.mesh;
      sum *= static_cast<double>(mesh.size(TokenAxes(mesh))) * mesh.size(Axis::kPp) / mesh.ranks();
    }
    return sum;
  }
  // The mean of the loss that balances experts over micro-batches, and the number of tokens at each expert, squared and
  // added up, on all ranks: of a pipeline's stages one has them.
  double aux_loss() const { return OfOneStage(aux_losses_, 1) / spec_.micro_batches; }
  double squares_of_loads() const { return OfOneStage(loads_, 2); }
  double grad_norm() const { return clip_.as<float>()[1]; }

  View Find(const std::string& name) const {
    const int i = train().FindBuffer(name);
    return i < 0 ? View{} : train_->BufferView(i);
  }
  std::vector<std::byte> BytesOf(const Buffer& b) const {
    std::vector<std::byte> bytes(static_cast<size_t>(b.type.bytes().v));
    Must(train_->Read(train().FindBuffer(b.name), bytes));
    return bytes;
  }
  // Bytes of all weights, adapters, states and gradients, by name. A weight that is cast from its master (CastWeights)
  // counts as two, as if it were stored. For a step of one micro-batch without gradients,
  // whose memory other values reuse.
  std::map<std::string, std::vector<std::byte>> State() const {
    std::map<std::string, std::vector<std::byte>> state;
    for (const Buffer& b : train().buffers) {
      const bool gone = b.role == Role::kGradient && spec_.micro_batches == 1;
      if (b.role == Role::kInput || b.role == Role::kOutput || gone) continue;
      std::vector<std::byte>& bytes = state[b.name] = BytesOf(b);
      const bool cast = b.role == Role::kWeight && b.trainable && b.type.dtype != spec_.dtype;
      if (!cast) continue;
      std::vector<std::byte> rounded(bytes.size() / 2);
      Convert(b.type.dtype, bytes.data(), spec_.dtype, rounded.data(), b.type.shape.elements());
      state[MasterName(b.name)] = std::exchange(bytes, std::move(rounded));
    }
    return state;
  }

 private:
  double OfOneStage(const std::vector<float>& values, double power) const {
    double sum = 0;
    for (const float x : values) sum += std::pow(static_cast<double>(x), power);
    if (spec_.communicator == nullptr) return sum;
    Must(spec_.communicator->AllReduceSum({&sum, 1}));
    return sum * spec_.mesh.mesh.size(Axis::kPp) / spec_.mesh.mesh.ranks();
  }

  // Norms scale by factors near 1, LoRA's B not zero: nothing vanishes.
  void Randomise(const Buffer& b) {
    const TensorType type{b.type.dtype, b.type.shape};
    std::vector<std::byte> bytes(static_cast<size_t>(type.bytes().v)), states(4 * type.shape.elements());
    const View view{bytes.data(), type};
    const PartView part = b.shard ? PartView(view, b.shard->global, b.shard->begin) : PartView(view);
    const std::string second = RowPairsName("");
    const std::string name = b.name.starts_with(second) ? b.name.substr(second.size()) : b.name;
    const auto normals = Normals(name, part.global.elements());
    // Gemma's norms scale by 1 + w.
    const bool vector = b.type.shape.rank() == 1, from_one = spec_.config.find("Gemma") == std::string::npos;
    const bool norm = vector && b.name.ends_with(".weight") && from_one;
    // DoRA's squares and magnitudes, which need not be those of the weights.
    const bool of_rows = vector && b.role == Role::kAdapter;
    const double scale = vector ? 0.1 : 0.7 / std::sqrt(static_cast<double>(part.global.columns()));
    if (formats_.contains(b.name)) return RandomiseBase(b, part, scale);
    const int master = train().FindBuffer(MasterName(b.name));
    DispatchFloat(b.type.dtype, [&]<class T>() {
      const std::span<T> x = part.view.as<T>();
      size_t i = 0;
      for (int64_t row = 0; row < part.rows(); ++row) {
        for (int64_t c = 0; c < part.columns(); ++c, ++i) {
          const auto place = static_cast<size_t>(part.RowBegin(row) + c);
          // In a run in bf16 also a master that is its own weight, as if the file were bf16.
          const auto number = static_cast<float>(scale * (*normals)[place] + (norm || of_rows ? 1 : 0));
          x[i] = FromFloat<T>(spec_.dtype == DType::kBF16 ? ToFloat(FromFloat<bf16>(number)) : number);
          const float rounded = ToFloat(x[i]);
          std::memcpy(states.data() + 4 * i, &rounded, 4);
        }
      }
    });
    if (b.type.packed()) {
      const int64_t rows = type.shape[0], columns = type.shape[1];
      std::vector<std::byte> packed(static_cast<size_t>(b.type.bytes().v));
      PackedPanels(b.type.layout, rows, columns)
          .PackRows(0, rows, reinterpret_cast<const uint16_t*>(bytes.data()), packed.data());
      bytes = std::move(packed);
    }
    Must(train_->Write(train().FindBuffer(b.name), bytes));
    if (master >= 0) Must(train_->Write(master, states));
  }

  // Of the weights that `base` keeps in another format, or the values of which it has.
  void FindFormats(const BaseFormat& base, const Graph& forward) {
    for (const LinearModule& module : model_->modules()) {
      for (const std::string& name : module.weights) {
        if (module.is_parameter && module.matrices == 0) continue;
        const auto format = module.matrices > 0 ? base.experts : module.is_head ? base.embedding : base.modules;
        if (format) formats_.emplace(name, *format);
      }
    }
    for (const Node& node : forward.nodes()) {
      const bool tokens = node.op == Op::kEmbedding && forward.value(node.inputs[1]).name == "token";
      if (!tokens || !base.embedding) continue;
      const std::string& table = forward.value(node.inputs[0]).name;
      if (!table.starts_with(kAdapterPrefix)) formats_.emplace(table, *base.embedding);
    }
  }

  // Rounded with the scales of the whole weight, also where this rank has a part of it.
  void RandomiseBase(const Buffer& b, const PartView& part, double scale) {
    const ElementFormat format = formats_.at(b.name);
    std::vector<float> whole(static_cast<size_t>(part.global.elements()));
    const auto normals = Normals(b.name, part.global.elements());
    for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(scale * (*normals)[i]);
    const Shape& shape = part.view.type.shape;
    const std::vector<std::byte> rows = Quantised(format, whole, part.global, part.begin, shape);
    if (spec_.base.is_kept()) {
      std::memcpy(part.view.data, rows.data(), rows.size());
    } else {
      const int64_t n = shape.columns();
      DispatchFloat(b.type.dtype, [&]<class T>() {
        for (int64_t i = 0; i < shape.elements(); ++i) {
          const bf16 value = format.Number(rows.data() + i / n * format.RowBytes(n), n, i % n);
          part.view.as<T>()[static_cast<size_t>(i)] = FromFloat<T>(ToFloat(value));
        }
      });
    }
    Must(train_->Write(train().FindBuffer(b.name), part.view.raw()));
  }

  void Run(Executor& executor, Batch& batch, const std::vector<int>& buffers) {
    const std::span<std::byte> data[] = {
        Raw(batch.token),   Raw(batch.target), Raw(batch.position), Raw(batch.document_start),
        Raw(rng_),          Raw(losses_),      Raw(batch.weight),   Raw(batch.document_length),
        Raw(batch.present), Raw(seeds_),       Raw(aux_losses_),    Raw(loads_)};
    HostArray io[std::size(data)];
    size_t n = 0;
    for (size_t i = 0; i < std::size(data); ++i) {
      if (buffers[i] >= 0) io[n++] = {buffers[i], data[i]};
    }
    Must(executor.Run({io, n}));
  }
  template <class T>
  static std::span<std::byte> Raw(std::vector<T>& v) {
    return std::as_writable_bytes(std::span(v));
  }

  const RunSpec spec_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KernelTable> kernels_, collectives_;
  std::map<std::string, ElementFormat> formats_;  // of weights that are, or have been, quantised
  std::vector<Program> programs_;
  ChosenMemory chosen_;
  std::unique_ptr<Arena> arena_, host_;
  std::unique_ptr<Store> disk_;
  std::unique_ptr<Executor> train_, eval_;
  std::vector<float> losses_, aux_losses_, seeds_, loads_;
  std::vector<int64_t> rng_;
  std::vector<int> train_buffers_, eval_buffers_;
  View scalars_, clip_;
  int64_t step_ = 0;
  int64_t data_ranks_ = 1, data_rank_ = 0;  // computing these from the mesh allocates
};

}  // namespace temper::tiny
