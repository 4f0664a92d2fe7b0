#include "model/llama.h"

#include <fmt/core.h>

#include "model/rope_frequencies.h"

namespace temper {
namespace {

constexpr char kEmbedding[] = "model.embed_tokens.weight", kHead[] = "lm_head";

struct LlamaConfig {
  ModelFacts facts;
  int64_t ffn = 0;
  double rms_norm_eps = 1e-6;
  std::vector<double> inv_freq;
  bool attention_bias = false, mlp_bias = false;
  bool tied = false;  // the head is the embedding
};

class Llama final : public Model {
 public:
  explicit Llama(LlamaConfig config) : c_(std::move(config)) { Declare(); }
  const ModelFacts& facts() const override { return c_.facts; }

 private:
  void BuildForward(ForwardBuilder& f) const override;
  ValueId Block(ForwardBuilder& f, ValueId x_TD, ValueId rope_TE, int block) const;
  std::vector<std::string> AliasesOf(const std::string& name) const override {
    // Of tied weights a file may hold either name.
    return c_.tied && name == kEmbedding ? std::vector{kHead + std::string(".weight")} : std::vector<std::string>();
  }

  const LlamaConfig c_;
};

// T tokens, D hidden, H heads, K kv-heads, E head dim, F ffn, V vocabulary.
ValueId Llama::Block(ForwardBuilder& f, ValueId x_TD, ValueId rope_TE, int block) const {
  const std::string p = fmt::format("model.layers.{}.", block);
  const ForwardBuilder::Heads heads{c_.facts.heads, c_.facts.kv_heads, c_.facts.head_dim};
  const Dim D{DimLabel::kHidden, c_.facts.hidden}, F{DimLabel::kFfn, c_.ffn};
  const Dim HE{DimLabel::kHeads, heads.heads * heads.head_dim}, KE{DimLabel::kKvHeads, heads.kv_heads * heads.head_dim};
  f.EnterBlock(block, p);

  ValueId h = f.RmsNorm(x_TD, f.NormScale(p + "input_layernorm.weight", D.size), c_.rms_norm_eps, "attn_norm");
  ValueId q = f.Linear(h, p + "self_attn.q_proj", HE, D, c_.attention_bias, "q");
  ValueId k = f.Linear(h, p + "self_attn.k_proj", KE, D, c_.attention_bias, "k");
  const ValueId v = f.Linear(h, p + "self_attn.v_proj", KE, D, c_.attention_bias, "v");
  q = f.Rope(q, rope_TE, heads.head_dim, "q_rope");
  k = f.Rope(k, rope_TE, heads.head_dim, "k_rope");
  ValueId o = f.Attend(q, k, v, heads, block, "attn");
  o = f.Linear(o, p + "self_attn.o_proj", D, HE, c_.attention_bias, "attn_out");
  x_TD = f.Sum(x_TD, o, "attn_residual");

  h = f.RmsNorm(x_TD, f.NormScale(p + "post_attention_layernorm.weight", D.size), c_.rms_norm_eps, "mlp_norm");
  const ValueId gate = f.Linear(h, p + "mlp.gate_proj", F, D, c_.mlp_bias, "gate");
  const ValueId up = f.Linear(h, p + "mlp.up_proj", F, D, c_.mlp_bias, "up");
  const ValueId down = f.Linear(f.Swiglu(gate, up, "mlp"), p + "mlp.down_proj", D, F, c_.mlp_bias, "mlp_out");
  return f.Sum(x_TD, down, "mlp_residual");
}

void Llama::BuildForward(ForwardBuilder& f) const {
  const Dim D{DimLabel::kHidden, c_.facts.hidden}, V{DimLabel::kVocab, c_.facts.vocab};
  f.EnterBlock(kBlockBefore, "model.");
  const ValueId table = f.Weight(kEmbedding, {V, D});
  ValueId x = f.Embedding(table, f.token(), 0, "embedded");
  const ValueId rope = f.RopeTable(f.position(), c_.inv_freq, "rope");
  for (int b = 0; b < c_.facts.blocks; ++b) x = Block(f, x, rope, b);
  f.EnterBlock(kBlockAfter, "model.");
  x = f.RmsNorm(x, f.NormScale("model.norm.weight", D.size), c_.rms_norm_eps, "final_norm");
  f.Head(x, c_.tied ? table : f.Weight(kHead + std::string(".weight"), {V, D}), kHead);
}

}  // namespace

Result<std::unique_ptr<Model>> ReadLlama(const Json& config, const std::string& where) {
  LlamaConfig c;
  ModelFacts& f = c.facts;
  f.architecture = "LlamaForCausalLM";
  // Fallbacks are transformers' class defaults: keys equal to them may be missing from a file.
  TEMPER_ASSIGN_OR_RETURN(f.vocab, IntOr(config, "vocab_size", 32000, where));
  TEMPER_ASSIGN_OR_RETURN(f.hidden, IntOr(config, "hidden_size", 4096, where));
  TEMPER_ASSIGN_OR_RETURN(f.blocks, IntOr(config, "num_hidden_layers", 32, where));
  TEMPER_ASSIGN_OR_RETURN(f.heads, IntOr(config, "num_attention_heads", 32, where));
  TEMPER_ASSIGN_OR_RETURN(f.kv_heads, IntOr(config, "num_key_value_heads", f.heads, where));
  TEMPER_ASSIGN_OR_RETURN(c.ffn, IntOr(config, "intermediate_size", 11008, where));
  TEMPER_ASSIGN_OR_RETURN(f.max_positions, IntOr(config, "max_position_embeddings", 2048, where));
  if (f.heads <= 0 || f.kv_heads <= 0 || f.heads % f.kv_heads != 0) {
    return Corrupt(fmt::format("{}: num_attention_heads {} must be a positive multiple of num_key_value_heads {}",
                               where, f.heads, f.kv_heads));
  }
  TEMPER_ASSIGN_OR_RETURN(f.head_dim, IntOr(config, "head_dim", f.hidden / f.heads, where));
  TEMPER_ASSIGN_OR_RETURN(c.rms_norm_eps, NumberOr(config, "rms_norm_eps", 1e-6, where));
  if (!(c.rms_norm_eps >= 0))
    return Corrupt(fmt::format("{}: rms_norm_eps is {}, should not be negative", where, c.rms_norm_eps));
  TEMPER_ASSIGN_OR_RETURN(f.initializer_range, NumberOr(config, "initializer_range", 0.02, where));
  TEMPER_ASSIGN_OR_RETURN(c.attention_bias, BoolOr(config, "attention_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(c.mlp_bias, BoolOr(config, "mlp_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(c.tied, BoolOr(config, "tie_word_embeddings", false, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string activation, StringOr(config, "hidden_act", "silu", where));
  if (activation != "silu")
    return Unsupported(fmt::format("{}: hidden_act '{}'; Llama blocks here use silu", where, activation));
  const auto sane = [](int64_t n, int64_t most) { return n > 0 && n <= most; };
  if (!sane(f.vocab, kMaxRows) || !sane(f.hidden, kMaxWidth) || !sane(f.blocks, kMaxBlocks) ||
      !sane(c.ffn, kMaxWidth) || !sane(f.head_dim, kMaxHeads) || !sane(f.max_positions, kMaxRows) ||
      !sane(f.heads, kMaxHeads) || f.head_dim % 2 != 0) {
    return Corrupt(
        fmt::format("{}: a size is missing, zero, negative or absurd (hidden_size {}, num_hidden_layers {}, "
                    "vocab_size {}, intermediate_size {}, head_dim {}, max_position_embeddings {})",
                    where, f.hidden, f.blocks, f.vocab, c.ffn, f.head_dim, f.max_positions));
  }
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, {"attention_dropout"}, where, &f));
  TEMPER_ASSIGN_OR_RETURN(c.inv_freq, RopeFrequencies(config, f.head_dim, f.max_positions, where));
  return std::unique_ptr<Model>(std::make_unique<Llama>(std::move(c)));
}

}  // namespace temper
