#include "model/decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/rope_frequencies.h"

namespace temper {
namespace {

constexpr char kEmbedding[] = "model.embed_tokens.weight", kHead[] = "lm_head", kHeadWeight[] = "lm_head.weight";

class Decoder final : public Model {
 public:
  explicit Decoder(DecoderSpec spec) : s_(std::move(spec)) { Declare(); }
  const ModelFacts& facts() const override { return s_.facts; }
  std::unique_ptr<Model> WithBlocks(std::span<const int> blocks) const override {
    DecoderSpec spec = s_;
    spec.blocks.clear();
    for (const int b : blocks) spec.blocks.push_back(s_.blocks[static_cast<size_t>(b)]);
    return MakeDecoder(std::move(spec));
  }

 private:
  void BuildForward(ForwardBuilder& f) const override;
  ValueId Block(ForwardBuilder& f, ValueId x_TD, ValueId rope_TE, int block) const;
  ValueId Attention(ForwardBuilder& f, ValueId x_TD, ValueId rope_TE, int block, const std::string& module) const;
  ValueId Mlp(ForwardBuilder& f, ValueId x_TD, const std::string& module) const;
  std::vector<std::string> AliasesOf(const std::string& name) const override {
    // Of tied weights a file may hold either name.
    return s_.tied && name == kEmbedding ? std::vector<std::string>{kHeadWeight} : std::vector<std::string>();
  }

  const DecoderSpec s_;
};

// T tokens, D hidden, H heads, K kv-heads, E head dim, F ffn, V vocabulary.
ValueId Decoder::Attention(ForwardBuilder& f, ValueId x_TD, ValueId rope_TE, int block,
                           const std::string& module) const {
  const ForwardBuilder::Heads heads{s_.heads, s_.kv_heads, s_.head_dim, s_.blocks[static_cast<size_t>(block)].window};
  const Dim D{DimLabel::kHidden, s_.hidden};
  const Dim HE{DimLabel::kHeads, heads.heads * heads.head_dim}, KE{DimLabel::kKvHeads, heads.kv_heads * heads.head_dim};
  ValueId q, k, v;
  if (s_.fused) {
    const auto qkv = f.FusedLinear(x_TD, module + "qkv_proj", {{"q", HE}, {"k", KE}, {"v", KE}}, D, s_.qkv_bias);
    q = qkv[0], k = qkv[1], v = qkv[2];
  } else {
    q = f.Linear(x_TD, module + "q_proj", HE, D, s_.qkv_bias, "q");
    k = f.Linear(x_TD, module + "k_proj", KE, D, s_.qkv_bias, "k");
    v = f.Linear(x_TD, module + "v_proj", KE, D, s_.qkv_bias, "v");
  }
  if (s_.head_norm) {
    const auto normed = [&](ValueId x, const char* norm, const char* name) {
      return f.GroupedRmsNorm(x, f.NormScale(module + norm + ".weight", heads.head_dim), s_.rms_norm_eps, name);
    };
    q = normed(q, "q_norm", "q_norm");
    k = normed(k, "k_norm", "k_norm");
  }
  q = f.Rope(q, rope_TE, heads.head_dim, "q_rope");
  k = f.Rope(k, rope_TE, heads.head_dim, "k_rope");
  const ValueId o = f.Attend(q, k, v, heads, block, "attn");
  return f.Linear(o, module + "o_proj", D, HE, s_.attention_out_bias, "attn_out");
}

ValueId Decoder::Mlp(ForwardBuilder& f, ValueId x_TD, const std::string& module) const {
  const Dim D{DimLabel::kHidden, s_.hidden}, F{DimLabel::kFfn, s_.ffn};
  ValueId gate, up;
  if (s_.fused) {
    const auto both = f.FusedLinear(x_TD, module + "gate_up_proj", {{"gate", F}, {"up", F}}, D, s_.mlp_bias);
    gate = both[0], up = both[1];
  } else {
    gate = f.Linear(x_TD, module + "gate_proj", F, D, s_.mlp_bias, "gate");
    up = f.Linear(x_TD, module + "up_proj", F, D, s_.mlp_bias, "up");
  }
  return f.Linear(f.Swiglu(gate, up, "mlp"), module + "down_proj", D, F, s_.mlp_bias, "mlp_out");
}

ValueId Decoder::Block(ForwardBuilder& f, ValueId x_TD, ValueId rope_TE, int block) const {
  const std::string p = fmt::format("model.layers.{}.", block);
  f.EnterBlock(block, p);
  const auto norm = [&](const char* module, const char* name) {
    return f.RmsNorm(x_TD, f.NormScale(p + module + ".weight", s_.hidden), s_.rms_norm_eps, name);
  };
  const ValueId o = Attention(f, norm("input_layernorm", "attn_norm"), rope_TE, block, p + "self_attn.");
  x_TD = f.Sum(x_TD, f.Dropout(o, s_.dropout, "attn_dropout"), "attn_residual");
  const ValueId h = Mlp(f, norm("post_attention_layernorm", "mlp_norm"), p + "mlp.");
  return f.Sum(x_TD, f.Dropout(h, s_.dropout, "mlp_dropout"), "mlp_residual");
}

void Decoder::BuildForward(ForwardBuilder& f) const {
  const Dim D{DimLabel::kHidden, s_.hidden}, V{DimLabel::kVocab, s_.facts.vocab};
  f.EnterBlock(kBlockBefore, "model.");
  const ValueId table = f.Weight(kEmbedding, {V, D});
  ValueId x = f.Embedding(table, f.token(), 0, "embedded");
  const ValueId rope = f.RopeTable(f.position(), s_.inv_freq, "rope");
  for (size_t b = 0; b < s_.blocks.size(); ++b) x = Block(f, x, rope, static_cast<int>(b));
  f.EnterBlock(kBlockAfter, "model.");
  x = f.RmsNorm(x, f.NormScale("model.norm.weight", D.size), s_.rms_norm_eps, "final_norm");
  f.Head(x, s_.tied ? table : f.Weight(kHeadWeight, {V, D}), kHead);
}

bool IsSane(int64_t n, int64_t most) {
  return n > 0 && n <= most;
}

}  // namespace

Result<DecoderSpec> ReadDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                const std::string& where) {
  DecoderSpec s;
  ModelFacts& f = s.facts;
  f.architecture = std::move(architecture);
  TEMPER_ASSIGN_OR_RETURN(f.vocab, IntOr(config, "vocab_size", defaults.vocab, where));
  TEMPER_ASSIGN_OR_RETURN(s.hidden, IntOr(config, "hidden_size", defaults.hidden, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t blocks, IntOr(config, "num_hidden_layers", defaults.blocks, where));
  TEMPER_ASSIGN_OR_RETURN(s.heads, IntOr(config, "num_attention_heads", defaults.heads, where));
  const int64_t kv_heads = defaults.kv_heads > 0 ? defaults.kv_heads : s.heads;
  TEMPER_ASSIGN_OR_RETURN(s.kv_heads, IntOr(config, "num_key_value_heads", kv_heads, where));
  TEMPER_ASSIGN_OR_RETURN(s.ffn, IntOr(config, "intermediate_size", defaults.ffn, where));
  TEMPER_ASSIGN_OR_RETURN(f.max_positions, IntOr(config, "max_position_embeddings", defaults.max_positions, where));
  if (s.heads <= 0 || s.kv_heads <= 0 || s.heads % s.kv_heads != 0) {
    return Corrupt(fmt::format("{}: num_attention_heads {} must be a positive multiple of num_key_value_heads {}",
                               where, s.heads, s.kv_heads));
  }
  const int64_t head_dim = defaults.head_dim > 0 ? defaults.head_dim : s.hidden / s.heads;
  TEMPER_ASSIGN_OR_RETURN(s.head_dim, IntOr(config, "head_dim", head_dim, where));
  TEMPER_ASSIGN_OR_RETURN(s.rms_norm_eps, NumberOr(config, "rms_norm_eps", defaults.rms_norm_eps, where));
  if (!(s.rms_norm_eps >= 0)) {
    return Corrupt(fmt::format("{}: rms_norm_eps is {}, should not be negative", where, s.rms_norm_eps));
  }
  TEMPER_ASSIGN_OR_RETURN(f.initializer_range, NumberOr(config, "initializer_range", 0.02, where));
  TEMPER_ASSIGN_OR_RETURN(s.tied, BoolOr(config, "tie_word_embeddings", defaults.tied, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string activation, StringOr(config, "hidden_act", "silu", where));
  if (activation != "silu") {
    return Unsupported(
        fmt::format("{}: hidden_act '{}'; {} is computed with silu alone", where, activation, f.architecture));
  }
  if (!IsSane(f.vocab, kMaxRows) || !IsSane(s.hidden, kMaxWidth) || !IsSane(blocks, kMaxBlocks) ||
      !IsSane(s.ffn, kMaxWidth) || !IsSane(s.head_dim, kMaxHeads) || !IsSane(f.max_positions, kMaxRows) ||
      !IsSane(s.heads, kMaxHeads) || s.head_dim % 2 != 0) {
    return Corrupt(
        fmt::format("{}: a size is missing, zero, negative or absurd (hidden_size {}, num_hidden_layers {}, "
                    "vocab_size {}, intermediate_size {}, head_dim {}, max_position_embeddings {})",
                    where, s.hidden, blocks, f.vocab, s.ffn, s.head_dim, f.max_positions));
  }
  s.blocks.resize(static_cast<size_t>(blocks));
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, "attention_dropout", defaults.attention_dropout, where, &f));
  TEMPER_ASSIGN_OR_RETURN(s.inv_freq, RopeFrequencies(config, s.head_dim, f.max_positions, where));
  return s;
}

Result<int64_t> ReadWindow(const Json& config, int64_t fallback, const std::string& where) {
  const auto it = config.find("sliding_window");
  if (it != config.end() && it->is_null()) return 0;
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, IntOr(config, "sliding_window", fallback, where));
  if (window < 0) return Corrupt(fmt::format("{}: sliding_window is {}, should not be negative", where, window));
  return window;
}

Status SetWindows(const Json& config, int64_t window, const std::function<bool(int64_t block)>& slides,
                  const std::string& where, DecoderSpec* spec) {
  std::vector<DecoderBlock>& blocks = spec->blocks;
  const auto types = config.find("layer_types");
  const bool listed = types != config.end() && !types->is_null();
  if (listed && (!types->is_array() || types->size() != blocks.size())) {
    return Corrupt(
        fmt::format("{}: layer_types should be a list with an entry for each of the {} layers", where, blocks.size()));
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    bool slide = slides(static_cast<int64_t>(b));
    if (listed) {
      slide = (*types)[b] == "sliding_attention";
      if (!slide && (*types)[b] != "full_attention") {
        return Unsupported(
            fmt::format("{}: layer {} of layer_types is {}; supported are full_attention and "
                        "sliding_attention",
                        where, b, (*types)[b].dump().substr(0, 40)));
      }
    }
    blocks[b].window = slide ? window : 0;
  }
  return OkStatus();
}

std::unique_ptr<Model> MakeDecoder(DecoderSpec spec) {
  ModelFacts& f = spec.facts;
  f.kinds.clear();
  for (const DecoderBlock& block : spec.blocks) {
    f.kinds.push_back(static_cast<int>(std::find(spec.blocks.begin(), spec.blocks.end(), block) - spec.blocks.begin()));
  }
  f.heads = {{DimLabel::kHeads, spec.heads}, {DimLabel::kKvHeads, spec.kv_heads}};
  return std::make_unique<Decoder>(std::move(spec));
}

}  // namespace temper
