#include "model/decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "format/json.h"
#include "graph/named_ops.h"
#include "model/gguf_description.h"
#include "model/quantisation_config.h"

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
  std::unique_ptr<Model> WithClasses(std::string architecture, int64_t classes) const override {
    DecoderSpec spec = s_;
    spec.facts.architecture = std::move(architecture);
    spec.facts.classes = classes;
    spec.facts.ignored.push_back(HeadInFiles() + ".weight");
    if (std::exchange(spec.head_bias, false)) spec.facts.ignored.push_back(HeadInFiles() + ".bias");
    if (std::exchange(spec.facts.tied, false)) spec.names.tied_heads = {HeadInFiles(), s_.names.head};
    spec.names.head = kClassHeadModule;
    spec.head_layer.module.clear();
    spec.names.head_in_files.clear();
    return MakeDecoder(std::move(spec));
  }

 private:
  void BuildForward(ForwardBuilder& f) const override;
  Result<GgufModel> Describe() const override { return DescribeGguf(s_); }
  ValueId Block(ForwardBuilder& f, ValueId x_TD, std::span<const RopeTables> ropes, int block,
                SharedValues* shared) const;
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
  const std::string head = s_.names.head + ".";
  if (name.starts_with(head)) {
    add(HeadInFiles() + name.substr(head.size() - 1));
  } else {
    // As in transformers: a file of the model without its head has no base_model_prefix, one of a model around it may
    // have it twice.
    std::vector<std::string> all = {InFiles(name), name};
    if (!s_.names.other_prefix.empty()) all.push_back(s_.names.other_prefix + name.substr(s_.names.prefix.size()));
    for (const std::string& one : all) {
      const std::string prefix = one.substr(0, one.find('.') + 1);
      add(one);
      add(one.substr(prefix.size()));
      add(prefix + one);
    }
  }
  // A file with tied weights may hold either name.
  if (name.starts_with(head)) add(name);
  if (name == EmbeddingName()) {
    if (s_.facts.tied) {
      add(HeadInFiles() + ".weight");
      add(HeadName());
    }
    for (const std::string& head : s_.names.tied_heads) add(head + ".weight");
  }
  return names;
}

// T tokens, D hidden, V vocabulary, W embedding.
ValueId Build(ForwardBuilder& f, const AttentionSpec& spec, const BlockContext& block, ValueId x_TD) {
  return BuildAttention(f, spec, block, x_TD);
}
ValueId Build(ForwardBuilder& f, const LatentAttentionSpec& spec, const BlockContext& block, ValueId x_TD) {
  return BuildLatentAttention(f, spec, block, x_TD);
}
ValueId Build(ForwardBuilder& f, const ShortConvSpec& spec, const BlockContext& block, ValueId x_TD) {
  return BuildShortConv(f, spec, block, x_TD);
}
ValueId Build(ForwardBuilder& f, const GatedDeltaSpec& spec, const BlockContext& block, ValueId x_TD) {
  return BuildGatedDelta(f, spec, block, x_TD);
}
ValueId Build(ForwardBuilder& f, const Mamba2Spec& spec, const BlockContext& block, ValueId x_TD) {
  return BuildMamba2(f, spec, block, x_TD);
}
ValueId Build(ForwardBuilder& f, const AttentionBesideMamba2Spec& spec, const BlockContext& block, ValueId x_TD) {
  return BuildAttentionBesideMamba2(f, spec, block, x_TD);
}
ValueId Build(ForwardBuilder&, std::monostate, const BlockContext&, ValueId x_TD) {
  return x_TD;
}
ValueId Build(ForwardBuilder& f, const MlpSpec& spec, const BlockContext& block, ValueId x_TD) {
  return BuildMlp(f, spec, block, x_TD);
}

ValueId Build(ForwardBuilder& f, const ExpertsSpec& spec, const BlockContext& block, ValueId x_TD) {
  return BuildExperts(f, spec, block, x_TD);
}

// Mixer and feed-forward of a block, in their frame of norms and residual sums.
ValueId BuildParts(ForwardBuilder& f, const DecoderBlock& b, const BlockContext& context, ValueId x_TD) {
  const auto normed = [&](ValueId x, const std::string& module, const char* name) {
    return module.empty()
               ? x
               : BuildNorm(f, b.norms.spec, x, context.path + module, {DimLabel::kNorm, context.hidden}, name);
  };
  const bool before = !b.norms.after_sums;
  ValueId h = before ? normed(x_TD, b.norms.mixer, "attn_norm") : x_TD;
  const ValueId read_by_mixer = h, input = x_TD;
  h = std::visit([&](const auto& mixer) { return Build(f, mixer, context, h); }, b.mixer);
  h = normed(f.Dropout(h, b.mixer_out_dropout, "attn_dropout"), b.norms.mixer_out, "attn_out_norm");
  const ValueId mixed = f.Scale(h, b.residual_scale, "attn_scaled");
  if (b.parallel && b.parts_dropout > 0) {
    h = b.norms.feed_forward.empty() ? read_by_mixer : normed(input, b.norms.feed_forward, "mlp_norm");
    h = std::visit([&](const auto& feed_forward) { return Build(f, feed_forward, context, h); }, b.feed_forward);
    h = f.Sum(mixed, f.Scale(h, b.residual_scale, "mlp_scaled"), "parts");
    return f.Sum(x_TD, f.Dropout(h, b.parts_dropout, "parts_dropout"), "mlp_residual");
  }
  if (b.norms.in_sums) x_TD = read_by_mixer;
  x_TD = f.Sum(x_TD, mixed, "attn_residual");
  if (!before) x_TD = normed(x_TD, b.norms.mixer, "attn_norm");
  if (std::holds_alternative<std::monostate>(b.feed_forward)) return x_TD;

  if (b.parallel) {
    h = b.norms.feed_forward.empty() ? read_by_mixer : normed(input, b.norms.feed_forward, "mlp_norm");
  } else {
    h = before ? normed(x_TD, b.norms.feed_forward, "mlp_norm") : x_TD;
    if (b.norms.in_sums) x_TD = h;
  }
  h = std::visit([&](const auto& feed_forward) { return Build(f, feed_forward, context, h); }, b.feed_forward);
  h = normed(f.Dropout(h, b.feed_forward_out_dropout, "mlp_dropout"), b.norms.feed_forward_out, "mlp_out_norm");
  x_TD = f.Sum(x_TD, f.Scale(h, b.residual_scale, "mlp_scaled"), "mlp_residual");
  return before ? x_TD : normed(x_TD, b.norms.feed_forward, "mlp_norm");
}

ValueId Decoder::Block(ForwardBuilder& f, ValueId x_TD, std::span<const RopeTables> ropes, int block,
                       SharedValues* shared) const {
  const DecoderBlock& b = s_.blocks[static_cast<size_t>(block)];
  const auto mixtures = [&](auto end) {
    return std::count_if(s_.blocks.begin(), end, [](const DecoderBlock& some) {
      return std::holds_alternative<ExpertsSpec>(some.feed_forward);
    });
  };
  using Init = ForwardBuilder::Init;
  const BlockContext context{
      .block = block,
      .path = fmt::format("{}{}{}.", s_.names.prefix, s_.names.blocks, block),
      .hidden = s_.hidden,
      .ropes = ropes,
      .transposed = s_.transposed,
      .mixed_init = s_.init_by_depth == DecoderSpec::InitByDepth::kNone ? Init::kNormal : Init::kNormalByDepth,
      .fed_init = s_.init_by_depth == DecoderSpec::InitByDepth::kBoth ? Init::kNormalByDepth : Init::kNormal,
      .shared = shared,
      .mixture = mixtures(s_.blocks.begin() + block),
      .mixtures = mixtures(s_.blocks.end())};
  f.EnterBlock(block, context.path);
  x_TD = BuildParts(f, b, context, x_TD);
  if (s_.per_layer.width > 0) {
    x_TD = f.Sum(x_TD, BuildPerLayerInput(f, s_.per_layer, context, x_TD), "per_layer_residual");
  }
  if (b.factor.empty()) return x_TD;
  return f.Add(Op::kScaleBy, {x_TD, f.Factor(context.path + b.factor)}, {}, "scaled")[0];
}

void Decoder::BuildForward(ForwardBuilder& f) const {
  const int64_t embed = s_.embed == 0 ? s_.hidden : s_.embed;
  const Dim D{DimLabel::kHidden, s_.hidden}, V{DimLabel::kVocab, s_.facts.vocab};
  const Dim W = embed == D.size ? D : Dim{DimLabel::kEmbed, embed};
  const std::string& p = s_.names.prefix;
  f.EnterBlock(kBlockBefore, p);
  const Dim rows{DimLabel::kVocab, s_.embedding_rows > 0 ? s_.embedding_rows : s_.facts.vocab};
  const ValueId table = f.Weight(EmbeddingName(), {rows, W});
  ValueId x = f.Embedding(table, f.token(), 0, "embedded");
  if (!s_.scales_in_embedding) x = f.Noise(x, "noise");
  x = s_.rounds_embedding_scale ? f.ScaleAsWeight(x, s_.embedding_scale, "scaled")
                                : f.Scale(x, s_.embedding_scale, "scaled");
  if (s_.scales_in_embedding) x = f.Noise(x, "noise");
  if (embed != D.size) x = f.Linear(x, p + "project_in", D, W, false, "projected_in");
  if (!s_.names.positions.empty()) {
    const Dim P{DimLabel::kPositions, s_.facts.max_positions + s_.position_offset};
    const ValueId positions = f.Weight(p + s_.names.positions + ".weight", {P, D});
    x = f.Sum(x, f.Embedding(positions, f.position(), s_.position_offset, "positions"), "input");
  }
  if (!s_.sinusoids.empty()) x = f.Sum(x, f.Sinusoids(s_.sinusoids, s_.sinusoid_shift, "sinusoids"), "input");
  if (!s_.names.embedding_norm.empty()) {
    x = BuildNorm(f, s_.norm, x, p + s_.names.embedding_norm, {DimLabel::kNorm, D.size}, "embedding_norm");
  }
  x = f.Dropout(x, s_.embedding_dropout, "embedding_dropout");
  std::vector<RopeTables> ropes;
  for (const RopeSpec& rope : s_.ropes) {
    const std::string name = ropes.empty() ? "rope" : fmt::format("rope{}", ropes.size());
    const auto made = [&](bool of_queries, const std::string& of) { return RopeTableOf(f, rope, of_queries, of); };
    const ValueId k = made(false, name);
    ropes.push_back({rope.position_beta == 0 ? k : made(true, name + "_q"), k, rope.interleaved});
  }
  SharedValues shared;
  if (s_.per_layer.width > 0) PublishPerLayerInputs(f, s_.per_layer, p, std::ssize(s_.blocks), D, x, &shared);
  for (size_t b = 0; b < s_.blocks.size(); ++b) x = Block(f, x, ropes, static_cast<int>(b), &shared);
  f.EnterBlock(kBlockAfter, p);
  if (!s_.names.final_norm.empty()) {
    x = BuildNorm(f, s_.norm, x, p + s_.names.final_norm, {DimLabel::kNorm, D.size}, "final_norm");
  }
  if (embed != D.size) x = f.Linear(x, p + "project_out", W, D, false, "projected_out");
  if (const HeadLayer& layer = s_.head_layer; !layer.module.empty()) {
    f.EnterBlock(kBlockAfter, "");
    x = f.Linear(x, layer.module + ".dense", D, D, layer.bias, "head_dense");
    x = Activated(f, x, layer.activation, layer.module + ".act", "head_activated");
    x = BuildNorm(f, s_.norm, x, layer.module + ".norm", {DimLabel::kNorm, D.size}, "head_norm");
  }
  if (s_.facts.classes > 0) {
    // One row cannot be dealt to ranks.
    const DimLabel label = s_.facts.classes == 1 ? DimLabel::kNone : DimLabel::kVocab;
    f.Head(x, f.Weight(HeadName(), {{label, s_.facts.classes}, W}), s_.names.head);
    return;
  }
  x = f.Scale(x, s_.logit_scale, "logits_scaled");
  f.Head(x, s_.facts.tied ? table : f.Weight(HeadName(), {V, W}), s_.names.head, s_.logit_cap, s_.head_bias);
}

}  // namespace

bool IsNull(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_null();
}

Result<DecoderSpec> ReadDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                const std::string& where) {
  const DecoderKeys& keys = defaults.keys;
  DecoderSpec s;
  AttentionSpec attention;
  MlpSpec mlp;
  ModelFacts& f = s.facts;
  f.architecture = std::move(architecture);
  ReadStoredFormat(config, /*has_stored_experts=*/false, &f);
  TEMPER_ASSIGN_OR_RETURN(f.vocab, IntOr(config, "vocab_size", defaults.vocab, where));
  TEMPER_ASSIGN_OR_RETURN(s.hidden, IntOr(config, keys.hidden, defaults.hidden, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t blocks, IntOr(config, keys.blocks, defaults.blocks, where));
  TEMPER_ASSIGN_OR_RETURN(attention.heads, IntOr(config, keys.heads, defaults.heads, where));
  attention.kv_heads = attention.heads;
  // A null, unlike a missing key, means that the value follows from the other sizes.
  if (!defaults.plain_heads) {
    const bool own = defaults.kv_heads > 0 && !IsNull(config, "num_key_value_heads");
    TEMPER_ASSIGN_OR_RETURN(attention.kv_heads,
                            IntOr(config, "num_key_value_heads", own ? defaults.kv_heads : attention.heads, where));
  }
  const int64_t ffn = defaults.ffn > 0 || !IsSane(s.hidden, kMaxWidth) ? defaults.ffn : 4 * s.hidden;
  TEMPER_ASSIGN_OR_RETURN(mlp.ffn, IntOr(config, keys.ffn, ffn, where));
  TEMPER_ASSIGN_OR_RETURN(f.max_positions, IntOr(config, keys.max_positions, defaults.max_positions, where));
  if (attention.heads <= 0 || attention.kv_heads <= 0 || attention.heads % attention.kv_heads != 0) {
    return Corrupt(fmt::format("{}: num_attention_heads {} must be a positive multiple of num_key_value_heads {}",
                               where, attention.heads, attention.kv_heads));
  }
  attention.head_dim = s.hidden / attention.heads;
  if (!defaults.plain_heads) {
    const bool own = defaults.head_dim > 0 && !IsNull(config, "head_dim");
    TEMPER_ASSIGN_OR_RETURN(attention.head_dim,
                            IntOr(config, "head_dim", own ? defaults.head_dim : attention.head_dim, where));
  } else if (s.hidden % attention.heads != 0) {
    return Corrupt(fmt::format("{}: {} {} must be a multiple of {} {}", where, keys.hidden, s.hidden, keys.heads,
                               attention.heads));
  }
  TEMPER_ASSIGN_OR_RETURN(s.norm.eps, NumberOr(config, keys.norm_eps, defaults.norm_eps, where));
  if (!(s.norm.eps >= 0)) {
    return Corrupt(fmt::format("{}: {} is {}, should not be negative", where, keys.norm_eps, s.norm.eps));
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
  mlp.activation = *activation;
  mlp.gated = defaults.gated;
  if (!IsSane(f.vocab, kMaxRows) || !IsSane(s.hidden, kMaxWidth) || !IsSane(blocks, kMaxBlocks) ||
      !IsSane(mlp.ffn, kMaxWidth) || !IsSane(attention.head_dim, kMaxHeads) || !IsSane(f.max_positions, kMaxRows) ||
      !IsSane(attention.heads, kMaxHeads) || (defaults.rotary && attention.head_dim % 2 != 0)) {
    return Corrupt(
        fmt::format("{}: a size is missing, not positive or out of range ({} {}, {} {}, vocab_size {}, {} {}, head_dim "
                    "{}, {} {})",
                    where, keys.hidden, s.hidden, keys.blocks, blocks, f.vocab, keys.ffn, mlp.ffn, attention.head_dim,
                    keys.max_positions, f.max_positions));
  }
  attention.norm = s.norm;
  attention.rope = defaults.rotary ? 0 : kNoRope;
  s.blocks.assign(static_cast<size_t>(blocks), {.norms = {.spec = s.norm}, .mixer = attention, .feed_forward = mlp});
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, keys.attention_dropout, defaults.attention_dropout, where, &f));
  if (!defaults.rotary) return s;
  TEMPER_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(config, defaults.rope.layer_type, defaults.rope,
                                                        attention.head_dim, f.max_positions, where));
  s.ropes = {rope};
  if (rope.original > 0) {
    f.training_notes.push_back(fmt::format(
        "documents of more than {} tokens use the long-context rotary embedding of {}; others use the usual one",
        rope.original, where));
  }
  return s;
}

Json WithOwnKeys(const Json& file, std::initializer_list<std::pair<const char*, const char*>> names) {
  Json config = file;
  for (const auto& [usual, own] : names) {
    if (config.contains(usual) && !config.contains(own)) config[own] = config[usual];
  }
  return config;
}

Status ExpectPlainHeadDim(const Json& config, const DecoderSpec& spec, const std::string& where) {
  const auto& attention = std::get<AttentionSpec>(spec.blocks.front().mixer);
  const int64_t plain = spec.hidden / attention.heads;
  TEMPER_ASSIGN_OR_RETURN(const int64_t head_dim, IntOr(config, "head_dim", plain, where));
  if (head_dim == plain && spec.hidden % attention.heads == 0) return OkStatus();
  return Unsupported(fmt::format("{}: head_dim is {}, but hidden_size / num_attention_heads is {} / {}", where,
                                 head_dim, spec.hidden, attention.heads));
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
                        where, b, DumpJson((*types)[b]).substr(0, 40)));
      }
    }
    if (listed && slide && window == 0) {
      return Corrupt(fmt::format(
          "{}: layer {} of layer_types is sliding_attention, but sliding_window and use_sliding_window set no window",
          where, b));
    }
    if (auto* const attention = std::get_if<AttentionSpec>(&blocks[b].mixer); attention != nullptr) {
      attention->window = slide ? window : 0;
    }
  }
  return OkStatus();
}

Result<std::vector<bool>> ReadAttentionLayers(const Json& config, const char* other, size_t layers,
                                              const std::string& where) {
  std::vector<bool> attention;
  const auto types = config.find("layer_types");
  if (types == config.end() || types->is_null()) return attention;
  if (!types->is_array() || types->size() != layers) {
    return Corrupt(
        fmt::format("{}: layer_types should be a list with an entry for each of the {} layers", where, layers));
  }
  for (const Json& type : *types) {
    attention.push_back(type == "full_attention");
    if (!attention.back() && type != other) {
      return Unsupported(fmt::format("{}: layer {} of layer_types is {}; supported are full_attention and {}", where,
                                     attention.size() - 1, DumpJson(type).substr(0, 40), other));
    }
  }
  return attention;
}

std::unique_ptr<Model> MakeDecoder(DecoderSpec spec) {
  ModelFacts& f = spec.facts;
  f.kinds.clear();
  for (const DecoderBlock& block : spec.blocks) {
    f.kinds.push_back(static_cast<int>(std::find(spec.blocks.begin(), spec.blocks.end(), block) - spec.blocks.begin()));
  }
  f.experts_in_all_blocks = std::all_of(spec.blocks.begin(), spec.blocks.end(), [](const DecoderBlock& block) {
    return std::holds_alternative<ExpertsSpec>(block.feed_forward);
  });
  f.heads.clear();
  const auto add = [&](DimLabel label, int64_t heads) {
    const auto same = [&](const Dim& other) { return other.label == label && other.size == heads; };
    if (std::none_of(f.heads.begin(), f.heads.end(), same)) f.heads.push_back({label, heads});
  };
  for (const DecoderBlock& block : spec.blocks) {
    if (const auto* const attention = std::get_if<AttentionSpec>(&block.mixer); attention != nullptr) {
      add(DimLabel::kHeads, attention->heads);
      add(DimLabel::kKvHeads, attention->kv_heads);
    } else if (const auto* const latent = std::get_if<LatentAttentionSpec>(&block.mixer); latent != nullptr) {
      add(DimLabel::kHeads, latent->heads);
      add(DimLabel::kKvHeads, latent->heads);
    } else if (const auto* const delta = std::get_if<GatedDeltaSpec>(&block.mixer); delta != nullptr) {
      add(DimLabel::kNone, delta->key_heads);
    } else if (const auto* const mamba = std::get_if<Mamba2Spec>(&block.mixer); mamba != nullptr) {
      add(DimLabel::kNone, mamba->groups);
    } else if (const auto* const both = std::get_if<AttentionBesideMamba2Spec>(&block.mixer); both != nullptr) {
      add(DimLabel::kHeads, both->attention.heads);
      add(DimLabel::kKvHeads, both->attention.kv_heads);
      add(DimLabel::kNone, both->mamba.groups);
    }
  }
  return std::make_unique<Decoder>(std::move(spec));
}

}  // namespace temper
