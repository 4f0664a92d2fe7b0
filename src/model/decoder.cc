#include "model/decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace temper {
namespace {

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
  // The norm of that module: over rows, of which its scale has the dim `over`, or over every so many elements of a row.
  ValueId Norm(ForwardBuilder& f, ValueId x, const std::string& module, Dim over, const std::string& name,
               bool grouped = false) const;
  ValueId Block(ForwardBuilder& f, ValueId x_TD, std::span<const Tables> ropes, int block) const;
  ValueId Attention(ForwardBuilder& f, ValueId x_TD, std::span<const Tables> ropes, int block,
                    const std::string& module) const;
  ValueId Mlp(ForwardBuilder& f, ValueId x_TD, const std::string& block) const;
  // Initial values of the last products of attention and MLP.
  ForwardBuilder::Init AddedInit() const {
    return s_.init_by_depth ? ForwardBuilder::Init::kNormalByDepth : ForwardBuilder::Init::kNormal;
  }
  std::string EmbeddingName() const { return s_.names.prefix + s_.names.embedding + ".weight"; }
  std::string HeadName() const { return s_.names.head + ".weight"; }
  std::string HeadInFiles() const { return s_.names.head_in_files.empty() ? s_.names.head : s_.names.head_in_files; }
  std::vector<std::string> NamesInFiles(const std::string& name) const override;
  // A name or a path as files have it, apart from the head's.
  std::string InFiles(std::string name) const {
    for (const auto& [here, there] : s_.names.in_files) {
      if (const size_t at = name.find(here); at != name.npos) name.replace(at, here.size(), there);
    }
    return name;
  }
  // Earlier versions of the class call modules as files do.
  std::vector<std::string> OlderPaths(const std::string& module) const override {
    const std::string older = module == s_.names.head ? HeadInFiles() : InFiles(module);
    if (older == module) return {};
    return {older};
  }

  const DecoderSpec s_;
};

std::vector<std::string> Decoder::NamesInFiles(const std::string& name) const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& more) {
    if (std::find(names.begin(), names.end(), more) == names.end()) names.push_back(more);
  };
  if (name == HeadName()) {
    add(HeadInFiles() + ".weight");
  } else {
    // As in transformers: a file of the model without its head has no base_model_prefix, one of a model around it may
    // have it twice.
    for (const std::string& one : {InFiles(name), name}) {
      const std::string prefix = one.substr(0, one.find('.') + 1);
      add(one);
      add(one.substr(prefix.size()));
      add(prefix + one);
    }
  }
  // A file with tied weights may hold either name.
  if (name == HeadName() || (s_.facts.tied && name == EmbeddingName())) {
    add(HeadInFiles() + ".weight");
    add(HeadName());
  }
  return names;
}

// T tokens, D hidden, H heads, K kv-heads, E head dim, R rotary elements of a head, F ffn, V vocabulary, W embedding.
ValueId Decoder::Norm(ForwardBuilder& f, ValueId x, const std::string& module, Dim over, const std::string& name,
                      bool grouped) const {
  using Kind = DecoderSpec::Norm;
  const bool plus_one = s_.norm == Kind::kRmsPlusOne,
             plain = s_.norm == Kind::kRmsPlain || s_.norm == Kind::kLayerPlain;
  const int64_t width = over.size;
  const auto init = plus_one ? ForwardBuilder::Init::kZero : ForwardBuilder::Init::kOne;
  const ValueId w = plain ? f.Constant(1, {width}) : f.Weight(module + ".weight", {over}, init);
  if (plus_one || s_.norm == Kind::kRms || s_.norm == Kind::kRmsPlain) {
    return f.RmsNorm(x, w, s_.norm_eps, name, {.grouped = grouped, .plus_one = plus_one});
  }
  TEMPER_CHECK(!grouped) << module << ": no layer norm of groups";
  const bool shifted = s_.norm == Kind::kLayer || s_.norm == Kind::kLayerPlusOne;
  const ValueId b = shifted ? f.NormShift(module + ".bias", width) : f.Constant(0, {width});
  if (s_.norm != Kind::kLayerPlusOne) return f.LayerNorm(x, w, b, s_.norm_eps, name);
  return f.Add(Op::kLayerNorm, {x, w, b}, {{"eps", s_.norm_eps}, {"plus_one", int64_t{1}}}, name)[0];
}

ValueId Decoder::Attention(ForwardBuilder& f, ValueId x_TD, std::span<const Tables> ropes, int block,
                           const std::string& module) const {
  const DecoderBlock& kind = s_.blocks[static_cast<size_t>(block)];
  const ForwardBuilder::Heads heads{s_.heads, s_.kv_heads, s_.head_dim, kind.window, kind.scale, s_.score_cap};
  const Dim D{DimLabel::kHidden, s_.hidden};
  const Dim HE{DimLabel::kHeads, heads.heads * heads.head_dim}, KE{DimLabel::kKvHeads, heads.kv_heads * heads.head_dim};
  const ModuleLayout layout{.transposed = s_.transposed};
  ValueId q, k, v;
  if (s_.fused_qkv) {
    const ModuleLayout fused{.groups = s_.qkv_by_kv_head ? s_.kv_heads : 1, .transposed = s_.transposed};
    const auto qkv =
        f.FusedLinear(x_TD, module + s_.names.fused_qkv, {{"q", HE}, {"k", KE}, {"v", KE}}, D, s_.qkv_bias, fused);
    q = qkv[0], k = qkv[1], v = qkv[2];
  } else {
    q = f.Linear(x_TD, module + "q_proj", HE, D, s_.qkv_bias, "q");
    k = f.Linear(x_TD, module + "k_proj", KE, D, s_.qkv_bias, "k");
    v = f.Linear(x_TD, module + "v_proj", KE, D, s_.qkv_bias, "v");
  }
  const auto normed = [&](ValueId x, Dim all, const std::string& norm, const std::string& name) {
    if (s_.qk_norm == DecoderSpec::QkNorm::kNone) return x;
    const bool by_head = s_.qk_norm == DecoderSpec::QkNorm::kHeads;
    return Norm(f, x, module + norm, by_head ? Dim{DimLabel::kNorm, heads.head_dim} : all, name, by_head);
  };
  const auto norm_both = [&] {
    q = normed(q, HE, s_.names.q_norm, "q_norm");
    k = normed(k, KE, s_.names.k_norm, "k_norm");
  };
  if (!s_.norms_after_rope) norm_both();
  if (kind.rope != kNoRope) {
    const auto rope = static_cast<size_t>(kind.rope);
    q = f.Rope(q, ropes[rope].q, heads.head_dim, s_.ropes[rope].interleaved, "q_rope");
    k = f.Rope(k, ropes[rope].k, heads.head_dim, s_.ropes[rope].interleaved, "k_rope");
  }
  if (s_.norms_after_rope) norm_both();
  const ValueId o = f.Attend(q, k, v, heads, block, "attn");
  return f.Linear(o, module + s_.names.attention_out, D, HE, s_.attention_out_bias, "attn_out", layout, AddedInit());
}

using Activation = DecoderSpec::Activation;

// Of a gated MLP.
GraphBuilder::Gate GateOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return GraphBuilder::Gate::kSilu;
    case Activation::kGelu:
      return GraphBuilder::Gate::kGelu;
    case Activation::kGeluTanh:
      return GraphBuilder::Gate::kGeluTanh;
    case Activation::kRelu:
    case Activation::kReluSquared:
      break;
  }
  TEMPER_CHECK(false) << "no gate has this activation";
  return {};
}

// Of an MLP without a gate.
ValueId Activated(ForwardBuilder& f, ValueId x, Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return f.Add(Op::kGelu, {x}, {{"tanh", int64_t{0}}}, "mlp")[0];
    case Activation::kGeluTanh:
      return f.Add(Op::kGelu, {x}, {{"tanh", int64_t{1}}}, "mlp")[0];
    case Activation::kRelu:
      return f.Add(Op::kRelu, {x}, {}, "mlp")[0];
    case Activation::kReluSquared:
      return f.Add(Op::kReluSquared, {x}, {}, "mlp")[0];
    case Activation::kSilu:
      break;
  }
  TEMPER_CHECK(false) << "an MLP with this activation is gated";
  return kNoValue;
}

ValueId Decoder::Mlp(ForwardBuilder& f, ValueId x_TD, const std::string& block) const {
  const Dim D{DimLabel::kHidden, s_.hidden}, F{DimLabel::kFfn, s_.ffn};
  const ModuleLayout layout{.transposed = s_.transposed};
  ValueId h;
  if (s_.gated) {
    ValueId gate, up;
    if (s_.fused_gate_up) {
      const auto both = f.FusedLinear(x_TD, block + "mlp.gate_up_proj", {{"gate", F}, {"up", F}}, D, s_.mlp_bias);
      gate = both[0], up = both[1];
    } else {
      gate = f.Linear(x_TD, block + "mlp.gate_proj", F, D, s_.mlp_bias, "gate");
      up = f.Linear(x_TD, block + s_.names.up, F, D, s_.mlp_bias, "up");
    }
    h = f.Glu(gate, up, "mlp", GateOf(s_.activation));
  } else {
    h = f.Linear(x_TD, block + s_.names.up, F, D, s_.mlp_bias, "up", layout);
    h = Activated(f, h, s_.activation);
  }
  h = f.Dropout(h, s_.mlp_dropout, "activation_dropout");
  return f.Linear(h, block + s_.names.down, D, F, s_.mlp_bias, "mlp_out", layout, AddedInit());
}

ValueId Decoder::Block(ForwardBuilder& f, ValueId x_TD, std::span<const Tables> ropes, int block) const {
  const std::string p = fmt::format("{}{}{}.", s_.names.prefix, s_.names.blocks, block);
  f.EnterBlock(block, p);
  const auto normed = [&](ValueId x, const std::string& module, const char* name) {
    return module.empty() ? x : Norm(f, x, p + module, {DimLabel::kNorm, s_.hidden}, name);
  };
  const bool before = !s_.norms_after_sums;
  ValueId h = before ? normed(x_TD, s_.attention_norm, "attn_norm") : x_TD;
  const ValueId read_by_attention = h, input = x_TD;
  h = Attention(f, h, ropes, block, p + s_.names.attention);
  h = normed(f.Dropout(h, s_.attention_out_dropout, "attn_dropout"), s_.attention_out_norm, "attn_out_norm");
  x_TD = f.Sum(x_TD, f.Scale(h, s_.residual_scale, "attn_scaled"), "attn_residual");
  if (!before) x_TD = normed(x_TD, s_.attention_norm, "attn_norm");

  if (s_.parallel) {
    h = s_.mlp_norm.empty() ? read_by_attention : normed(input, s_.mlp_norm, "mlp_norm");
  } else {
    h = before ? normed(x_TD, s_.mlp_norm, "mlp_norm") : x_TD;
  }
  h = Mlp(f, h, p);
  h = normed(f.Dropout(h, s_.mlp_out_dropout, "mlp_dropout"), s_.mlp_out_norm, "mlp_out_norm");
  x_TD = f.Sum(x_TD, f.Scale(h, s_.residual_scale, "mlp_scaled"), "mlp_residual");
  return before ? x_TD : normed(x_TD, s_.mlp_norm, "mlp_norm");
}

void Decoder::BuildForward(ForwardBuilder& f) const {
  const int64_t embed = s_.embed == 0 ? s_.hidden : s_.embed;
  const Dim D{DimLabel::kHidden, s_.hidden}, V{DimLabel::kVocab, s_.facts.vocab};
  const Dim W = embed == D.size ? D : Dim{DimLabel::kEmbed, embed};
  const std::string& p = s_.names.prefix;
  f.EnterBlock(kBlockBefore, p);
  const ValueId table = f.Weight(EmbeddingName(), {V, W});
  double scale = s_.embedding_scale;
  if (s_.rounds_embedding_scale && f.spec().dtype == DType::kBF16) {
    scale = ToFloat(FromFloat<bf16>(static_cast<float>(scale)));
  }
  ValueId x = f.Embedding(table, f.token(), 0, "embedded");
  if (!s_.scales_in_embedding) x = f.Noise(x, "noise");
  x = f.Scale(x, scale, "scaled");
  if (s_.scales_in_embedding) x = f.Noise(x, "noise");
  if (embed != D.size) x = f.Linear(x, p + "project_in", D, W, false, "projected_in");
  if (!s_.names.positions.empty()) {
    const Dim P{DimLabel::kPositions, s_.facts.max_positions + s_.position_offset};
    const ValueId positions = f.Weight(p + s_.names.positions + ".weight", {P, D});
    x = f.Sum(x, f.Embedding(positions, f.position(), s_.position_offset, "positions"), "input");
  }
  x = f.Dropout(x, s_.embedding_dropout, "embedding_dropout");
  if (s_.norms_embedding) x = Norm(f, x, p + "embedding_norm", {DimLabel::kNorm, D.size}, "embedding_norm");
  std::vector<Tables> ropes;
  for (const RopeSpec& rope : s_.ropes) {
    const std::string name = ropes.empty() ? "rope" : fmt::format("rope{}", ropes.size());
    const auto made = [&](bool of_queries, const std::string& of) { return RopeTableOf(f, rope, of_queries, of); };
    const ValueId k = made(false, name);
    ropes.push_back({rope.position_beta == 0 ? k : made(true, name + "_q"), k});
  }
  for (size_t b = 0; b < s_.blocks.size(); ++b) x = Block(f, x, ropes, static_cast<int>(b));
  f.EnterBlock(kBlockAfter, p);
  if (!s_.names.final_norm.empty()) x = Norm(f, x, p + s_.names.final_norm, {DimLabel::kNorm, D.size}, "final_norm");
  if (embed != D.size) x = f.Linear(x, p + "project_out", W, D, false, "projected_out");
  x = f.Scale(x, s_.logit_scale, "logits_scaled");
  f.Head(x, s_.facts.tied ? table : f.Weight(HeadName(), {V, W}), s_.names.head, s_.logit_cap);
}

bool IsNull(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_null();
}

// The activation that transformers calls `name`, if MLPs with or without a gate may have it.
std::optional<Activation> ActivationNamed(const std::string& name, bool gated) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (gated && (name == "silu" || name == "swish")) return Activation::kSilu;
  if (!gated && name == "relu") return Activation::kRelu;
  if (!gated && name == "relu2") return Activation::kReluSquared;
  return std::nullopt;
}

}  // namespace

Result<DecoderSpec> ReadDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                const std::string& where) {
  const DecoderKeys& keys = defaults.keys;
  DecoderSpec s;
  ModelFacts& f = s.facts;
  f.architecture = std::move(architecture);
  TEMPER_ASSIGN_OR_RETURN(f.vocab, IntOr(config, "vocab_size", defaults.vocab, where));
  TEMPER_ASSIGN_OR_RETURN(s.hidden, IntOr(config, keys.hidden, defaults.hidden, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t blocks, IntOr(config, keys.blocks, defaults.blocks, where));
  TEMPER_ASSIGN_OR_RETURN(s.heads, IntOr(config, keys.heads, defaults.heads, where));
  s.kv_heads = s.heads;
  // A null, unlike a missing key, means that the value follows from the other sizes.
  if (!defaults.plain_heads) {
    const bool own = defaults.kv_heads > 0 && !IsNull(config, "num_key_value_heads");
    TEMPER_ASSIGN_OR_RETURN(s.kv_heads, IntOr(config, "num_key_value_heads", own ? defaults.kv_heads : s.heads, where));
  }
  TEMPER_ASSIGN_OR_RETURN(s.ffn, IntOr(config, keys.ffn, defaults.ffn, where));
  TEMPER_ASSIGN_OR_RETURN(f.max_positions, IntOr(config, keys.max_positions, defaults.max_positions, where));
  if (s.heads <= 0 || s.kv_heads <= 0 || s.heads % s.kv_heads != 0) {
    return Corrupt(fmt::format("{}: num_attention_heads {} must be a positive multiple of num_key_value_heads {}",
                               where, s.heads, s.kv_heads));
  }
  s.head_dim = s.hidden / s.heads;
  if (!defaults.plain_heads) {
    const bool own = defaults.head_dim > 0 && !IsNull(config, "head_dim");
    TEMPER_ASSIGN_OR_RETURN(s.head_dim, IntOr(config, "head_dim", own ? defaults.head_dim : s.head_dim, where));
  } else if (s.hidden % s.heads != 0) {
    return Corrupt(
        fmt::format("{}: {} {} must be a multiple of {} {}", where, keys.hidden, s.hidden, keys.heads, s.heads));
  }
  TEMPER_ASSIGN_OR_RETURN(s.norm_eps, NumberOr(config, keys.norm_eps, defaults.norm_eps, where));
  if (!(s.norm_eps >= 0)) {
    return Corrupt(fmt::format("{}: {} is {}, should not be negative", where, keys.norm_eps, s.norm_eps));
  }
  TEMPER_ASSIGN_OR_RETURN(f.initializer_range,
                          NumberOr(config, keys.initializer_range, defaults.initializer_range, where));
  TEMPER_ASSIGN_OR_RETURN(f.tied, BoolOr(config, "tie_word_embeddings", defaults.tied, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string name, StringOr(config, keys.activation, defaults.activation, where));
  const auto activation = ActivationNamed(name, defaults.gated);
  if (!activation) {
    return Unsupported(fmt::format("{}: {} '{}'; supported are {}, gelu, gelu_new, gelu_fast and gelu_pytorch_tanh",
                                   where, keys.activation, name, defaults.gated ? "silu" : "relu, relu2"));
  }
  s.activation = *activation;
  s.gated = defaults.gated;
  if (!IsSane(f.vocab, kMaxRows) || !IsSane(s.hidden, kMaxWidth) || !IsSane(blocks, kMaxBlocks) ||
      !IsSane(s.ffn, kMaxWidth) || !IsSane(s.head_dim, kMaxHeads) || !IsSane(f.max_positions, kMaxRows) ||
      !IsSane(s.heads, kMaxHeads) || (defaults.rotary && s.head_dim % 2 != 0)) {
    return Corrupt(
        fmt::format("{}: a size is missing, not positive or out of range ({} {}, {} {}, vocab_size {}, {} {}, head_dim "
                    "{}, {} {})",
                    where, keys.hidden, s.hidden, keys.blocks, blocks, f.vocab, keys.ffn, s.ffn, s.head_dim,
                    keys.max_positions, f.max_positions));
  }
  s.blocks.resize(static_cast<size_t>(blocks));
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, keys.attention_dropout, defaults.attention_dropout, where, &f));
  if (!defaults.rotary) {
    for (DecoderBlock& block : s.blocks) block.rope = kNoRope;
    return s;
  }
  TEMPER_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(config, defaults.rope.layer_type, defaults.rope, s.head_dim,
                                                        f.max_positions, where));
  s.ropes = {rope};
  if (rope.original > 0) {
    f.training_notes.push_back(fmt::format(
        "documents of more than {} tokens use the long-context rotary embedding of {}; others use the usual one",
        rope.original, where));
  }
  return s;
}

Status ExpectPlainHeadDim(const Json& config, const DecoderSpec& spec, const std::string& where) {
  const int64_t plain = spec.hidden / spec.heads;
  TEMPER_ASSIGN_OR_RETURN(const int64_t head_dim, IntOr(config, "head_dim", plain, where));
  if (head_dim == plain && spec.hidden % spec.heads == 0) return OkStatus();
  return Unsupported(fmt::format("{}: head_dim is {}, but hidden_size / num_attention_heads is {} / {}", where,
                                 head_dim, spec.hidden, spec.heads));
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
