#include "model/decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

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
  // The tables of one rope, [T, R] each.
  struct Tables {
    ValueId q, k;
  };
  ValueId Block(ForwardBuilder& f, ValueId x_TD, std::span<const Tables> ropes, int block) const;
  ValueId Attention(ForwardBuilder& f, ValueId x_TD, std::span<const Tables> ropes, int block,
                    const std::string& module) const;
  ValueId Mlp(ForwardBuilder& f, ValueId x_TD, const std::string& module) const;
  std::vector<std::string> AliasesOf(const std::string& name) const override {
    // A file with tied weights may hold either name.
    return s_.tied && name == kEmbedding ? std::vector<std::string>{kHeadWeight} : std::vector<std::string>();
  }

  const DecoderSpec s_;
};

// T tokens, D hidden, H heads, K kv-heads, E head dim, R rotary elements of a head, F ffn, V vocabulary.
ValueId Decoder::Attention(ForwardBuilder& f, ValueId x_TD, std::span<const Tables> ropes, int block,
                           const std::string& module) const {
  const DecoderBlock& kind = s_.blocks[static_cast<size_t>(block)];
  const ForwardBuilder::Heads heads{s_.heads, s_.kv_heads, s_.head_dim, kind.window};
  const Dim D{DimLabel::kHidden, s_.hidden};
  const Dim HE{DimLabel::kHeads, heads.heads * heads.head_dim}, KE{DimLabel::kKvHeads, heads.kv_heads * heads.head_dim};
  ValueId q, k, v;
  if (s_.fused_qkv) {
    const auto qkv = f.FusedLinear(x_TD, module + "qkv_proj", {{"q", HE}, {"k", KE}, {"v", KE}}, D, s_.qkv_bias);
    q = qkv[0], k = qkv[1], v = qkv[2];
  } else {
    q = f.Linear(x_TD, module + "q_proj", HE, D, s_.qkv_bias, "q");
    k = f.Linear(x_TD, module + "k_proj", KE, D, s_.qkv_bias, "k");
    v = f.Linear(x_TD, module + "v_proj", KE, D, s_.qkv_bias, "v");
  }
  const auto normed = [&](ValueId x, int64_t width, const std::string& norm) {
    if (s_.qk_norm == DecoderSpec::QkNorm::kNone) return x;
    const bool by_head = s_.qk_norm == DecoderSpec::QkNorm::kHeads;
    const ValueId w = f.NormScale(module + norm + ".weight", by_head ? heads.head_dim : width);
    return by_head ? f.GroupedRmsNorm(x, w, s_.rms_norm_eps, norm) : f.RmsNorm(x, w, s_.rms_norm_eps, norm);
  };
  q = normed(q, HE.size, "q_norm");
  k = normed(k, KE.size, "k_norm");
  if (kind.rope != kNoRope) {
    const auto rope = static_cast<size_t>(kind.rope);
    q = f.Rope(q, ropes[rope].q, heads.head_dim, s_.ropes[rope].interleaved, "q_rope");
    k = f.Rope(k, ropes[rope].k, heads.head_dim, s_.ropes[rope].interleaved, "k_rope");
  }
  const ValueId o = f.Attend(q, k, v, heads, block, "attn");
  return f.Linear(o, module + "o_proj", D, HE, s_.attention_out_bias, "attn_out");
}

ValueId Decoder::Mlp(ForwardBuilder& f, ValueId x_TD, const std::string& module) const {
  const Dim D{DimLabel::kHidden, s_.hidden}, F{DimLabel::kFfn, s_.ffn};
  ValueId gate, up;
  if (s_.fused_gate_up) {
    const auto both = f.FusedLinear(x_TD, module + "gate_up_proj", {{"gate", F}, {"up", F}}, D, s_.mlp_bias);
    gate = both[0], up = both[1];
  } else {
    gate = f.Linear(x_TD, module + "gate_proj", F, D, s_.mlp_bias, "gate");
    up = f.Linear(x_TD, module + "up_proj", F, D, s_.mlp_bias, "up");
  }
  return f.Linear(f.Swiglu(gate, up, "mlp"), module + "down_proj", D, F, s_.mlp_bias, "mlp_out");
}

ValueId Decoder::Block(ForwardBuilder& f, ValueId x_TD, std::span<const Tables> ropes, int block) const {
  const std::string p = fmt::format("model.layers.{}.", block);
  f.EnterBlock(block, p);
  const auto normed = [&](ValueId x, const std::string& module, const char* name) {
    if (module.empty()) return x;
    return f.RmsNorm(x, f.NormScale(p + module + ".weight", s_.hidden), s_.rms_norm_eps, name);
  };
  ValueId h = Attention(f, normed(x_TD, s_.attention_norm, "attn_norm"), ropes, block, p + "self_attn.");
  h = normed(f.Dropout(h, s_.dropout, "attn_dropout"), s_.attention_out_norm, "attn_out_norm");
  x_TD = f.Sum(x_TD, h, "attn_residual");
  h = Mlp(f, normed(x_TD, s_.mlp_norm, "mlp_norm"), p + "mlp.");
  h = normed(f.Dropout(h, s_.dropout, "mlp_dropout"), s_.mlp_out_norm, "mlp_out_norm");
  return f.Sum(x_TD, h, "mlp_residual");
}

void Decoder::BuildForward(ForwardBuilder& f) const {
  const Dim D{DimLabel::kHidden, s_.hidden}, V{DimLabel::kVocab, s_.facts.vocab};
  f.EnterBlock(kBlockBefore, "model.");
  const ValueId table = f.Weight(kEmbedding, {V, D});
  ValueId x = f.Embedding(table, f.token(), 0, "embedded");
  std::vector<Tables> ropes;
  for (const RopeSpec& rope : s_.ropes) {
    const std::string name = ropes.empty() ? "rope" : fmt::format("rope{}", ropes.size());
    const auto made = [&](bool of_queries, const std::string& of) {
      return RopeTableOf(f, f.position(), rope, f.spec().context(), of_queries, of);
    };
    const ValueId k = made(false, name);
    ropes.push_back({rope.position_beta == 0 ? k : made(true, name + "_q"), k});
  }
  for (size_t b = 0; b < s_.blocks.size(); ++b) x = Block(f, x, ropes, static_cast<int>(b));
  f.EnterBlock(kBlockAfter, "model.");
  x = f.RmsNorm(x, f.NormScale("model.norm.weight", D.size), s_.rms_norm_eps, "final_norm");
  f.Head(x, s_.tied ? table : f.Weight(kHeadWeight, {V, D}), kHead);
}

bool IsNull(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_null();
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
  // A null, unlike a missing key, means that the value follows from the other sizes.
  const bool own_kv_heads = defaults.kv_heads > 0 && !IsNull(config, "num_key_value_heads");
  TEMPER_ASSIGN_OR_RETURN(s.kv_heads,
                          IntOr(config, "num_key_value_heads", own_kv_heads ? defaults.kv_heads : s.heads, where));
  TEMPER_ASSIGN_OR_RETURN(s.ffn, IntOr(config, "intermediate_size", defaults.ffn, where));
  TEMPER_ASSIGN_OR_RETURN(f.max_positions, IntOr(config, "max_position_embeddings", defaults.max_positions, where));
  if (s.heads <= 0 || s.kv_heads <= 0 || s.heads % s.kv_heads != 0) {
    return Corrupt(fmt::format("{}: num_attention_heads {} must be a positive multiple of num_key_value_heads {}",
                               where, s.heads, s.kv_heads));
  }
  const bool own_head_dim = defaults.head_dim > 0 && !IsNull(config, "head_dim");
  TEMPER_ASSIGN_OR_RETURN(s.head_dim,
                          IntOr(config, "head_dim", own_head_dim ? defaults.head_dim : s.hidden / s.heads, where));
  TEMPER_ASSIGN_OR_RETURN(s.rms_norm_eps, NumberOr(config, "rms_norm_eps", defaults.rms_norm_eps, where));
  if (!(s.rms_norm_eps >= 0)) {
    return Corrupt(fmt::format("{}: rms_norm_eps is {}, should not be negative", where, s.rms_norm_eps));
  }
  TEMPER_ASSIGN_OR_RETURN(f.initializer_range, NumberOr(config, "initializer_range", 0.02, where));
  TEMPER_ASSIGN_OR_RETURN(s.tied, BoolOr(config, "tie_word_embeddings", defaults.tied, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string activation, StringOr(config, "hidden_act", "silu", where));
  if (activation != "silu") {
    return Unsupported(fmt::format("{}: hidden_act '{}'; {} supports only silu", where, activation, f.architecture));
  }
  if (!IsSane(f.vocab, kMaxRows) || !IsSane(s.hidden, kMaxWidth) || !IsSane(blocks, kMaxBlocks) ||
      !IsSane(s.ffn, kMaxWidth) || !IsSane(s.head_dim, kMaxHeads) || !IsSane(f.max_positions, kMaxRows) ||
      !IsSane(s.heads, kMaxHeads) || s.head_dim % 2 != 0) {
    return Corrupt(
        fmt::format("{}: a size is missing, not positive or out of range (hidden_size {}, num_hidden_layers {}, "
                    "vocab_size {}, intermediate_size {}, head_dim {}, max_position_embeddings {})",
                    where, s.hidden, blocks, f.vocab, s.ffn, s.head_dim, f.max_positions));
  }
  s.blocks.resize(static_cast<size_t>(blocks));
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, "attention_dropout", defaults.attention_dropout, where, &f));
  TEMPER_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(config, defaults.rope.layer_type, defaults.rope, s.head_dim,
                                                        f.max_positions, where));
  s.ropes = {rope};
  if (rope.original > 0) {
    f.training_notes.push_back(fmt::format(
        "rows of more than {} tokens use the long-context rotary embedding of {}; other rows use the usual one",
        rope.original, where));
  }
  return s;
}

Result<int64_t> ReadWindow(const Json& config, int64_t fallback, const std::string& where) {
  if (IsNull(config, "sliding_window")) return 0;
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
    if (listed && slide && window == 0) {
      return Corrupt(fmt::format(
          "{}: layer {} of layer_types is sliding_attention, but sliding_window and use_sliding_window set no window",
          where, b));
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
