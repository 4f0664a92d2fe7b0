#include "model/gguf_description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "model/alibi.h"

namespace temper {
namespace {

bool HasWeight(NormKind kind) {
  return kind != NormKind::kRmsPlain && kind != NormKind::kLayerPlain;
}
bool HasShift(NormKind kind) {
  return kind == NormKind::kLayer || kind == NormKind::kLayerPlusOne;
}
bool IsRms(NormKind kind) {
  return kind == NormKind::kRms || kind == NormKind::kRmsPlusOne || kind == NormKind::kRmsPlain;
}

class Describer {
 public:
  explicit Describer(const DecoderSpec& spec) : s_(spec), a_(spec.gguf) {}

  Result<GgufModel> Run() {
    const std::string& family = s_.facts.architecture;
    if (a_.name == nullptr) {
      return Unsupported(fmt::format(
          "{} has no GGUF form: llama.cpp, which reads these files, does not compute it, or Temper does not "
          "write it yet (docs/howto/export.md lists the families). Export a Hugging Face folder instead, "
          "with --format hf",
          family));
    }
    FindMissing();
    if (!missing_.empty()) {
      return Unsupported(
          fmt::format("{}: this model has what llama.cpp's architecture {} does not compute: {}. Export a Hugging Face "
                      "folder instead, with --format hf",
                      family, a_.name, fmt::join(missing_, ", ")));
    }
    out_.architecture = a_.name;
    WriteKeys();
    WriteTensors();
    return std::move(out_);
  }

 private:
  const AttentionSpec& attention(size_t block) const { return std::get<AttentionSpec>(s_.blocks[block].mixer); }
  const AttentionSpec& first() const { return attention(0); }

  void Need(bool holds, std::string what) {
    if (!holds && std::find(missing_.begin(), missing_.end(), what) == missing_.end())
      missing_.push_back(std::move(what));
  }

  void FindMissing() {
    if (!a_.missing.empty()) Need(false, a_.missing);
    for (const DecoderBlock& block : s_.blocks) {
      Need(std::holds_alternative<AttentionSpec>(block.mixer) &&
               !std::holds_alternative<std::monostate>(block.feed_forward),
           "blocks without attention");
    }
    if (!missing_.empty()) return;
    for (size_t b = 0; b < s_.blocks.size(); ++b) FindMissingOf(s_.blocks[b], attention(b), b);
    Need(s_.embedding_scale == 1 || a_.scales_embedding, "the scale of embeddings");
    Need(s_.logit_scale == 1 || a_.scales_logits, "the scale of logits");
    Need(s_.logit_cap == 0 || a_.logit_cap, "the cap of logits");
    Need(s_.embed == 0 || s_.embed == s_.hidden, "embeddings of another width");
    Need(s_.position_offset == 0, "the offset of positions");
    Need(s_.names.embedding_norm.empty() || a_.embedding_norm != nullptr, "the norm of embeddings");
    Need(s_.sinusoids.empty(), "sinusoids");
    Need(s_.embedding_rows == 0, "a head of fewer words than the embedding");
    Need(s_.facts.tied || a_.own_head, "a head that is not the embedding");
    Need(!s_.head_bias, "a bias of the head");
    Need(s_.facts.classes == 0, "a head of classes or of a reward");
    Need(a_.any_head_dim || first().heads * first().head_dim == s_.hidden, "heads of another width (head_dim)");
    for (const RopeSpec& rope : s_.ropes) FindMissingOf(rope);
  }

  void FindMissingOf(const DecoderBlock& block, const AttentionSpec& attention, size_t b) {
    Need(!attention.out_bias || a_.out_bias, "biases of attention's output");
    const double usual = a_.score_scale != 0 ? a_.score_scale : 1 / std::sqrt(static_cast<double>(attention.head_dim));
    Need(attention.scale == 0 || std::abs(attention.scale / usual - 1) < 1e-6, "the scale of scores");
    Need(attention.score_cap == 0 || a_.score_cap, "the cap of scores");
    Need(!attention.gated && attention.head_gate.empty(), "gates of attention");
    Need(attention.clip == 0 || a_.clips, "bounds of q, k and v (clip_qkv)");
    Need(HasSlopes(attention, usual), "ALiBi");
    Need(attention.qk_norm != AttentionSpec::QkNorm::kEachHead, "norms of q and k with scales of each head");
    Need(attention.heads == first().heads && attention.kv_heads == first().kv_heads &&
             attention.head_dim == first().head_dim,
         "layers with different heads");
    Need(block.residual_scale == 1 || a_.scales_residual, "the scale of what blocks add");
    Need(!block.norms.after_sums, "norms after the sums");
    Need(!block.norms.in_sums, "sums that go on from norms");
    Need(!block.parallel || a_.parallel, "attention and MLP side by side");
    if (attention.window > 0 && a_.windows) {
      Need(attention.window == Window(), "windows of different sizes");
    }
    // A layer without a window has the first embedding, one with a window the last.
    const int rope = attention.window > 0 && s_.ropes.size() > 1 ? 1 : 0;
    bool turns = !s_.ropes.empty();
    if (a_.rope == GgufArchitecture::Rope::kThreeOfFour) turns = (b + 1) % 4 != 0;
    if (a_.rope == GgufArchitecture::Rope::kWindowed) turns = attention.window > 0 || Window() == 0;
    Need(attention.rope == (turns ? rope : kNoRope), "which layers have a rotary embedding");
    if (const auto* const mlp = std::get_if<MlpSpec>(&block.feed_forward); mlp != nullptr) {
      Need(!mlp->bias || a_.mlp_bias, "biases of the MLP");
      Need(mlp->activation == a_.activation, "the activation of the MLP");
      Need(experts() == nullptr, "layers with experts beside layers with an MLP");
    } else if (const auto* const experts = std::get_if<ExpertsSpec>(&block.feed_forward); experts != nullptr) {
      Need(experts->activation == a_.activation, "the activation of the experts");
      Need(this->experts() != nullptr, "layers with experts beside layers with an MLP");
      Need(experts->normalise == a_.normalises_experts, "how the weights of experts add up (norm_topk_prob)");
    }
  }

  // The slopes that the architecture computes with, be it none. `scale`: of scores, to which llama.cpp adds them.
  bool HasSlopes(const AttentionSpec& attention, double scale) const {
    if (!a_.alibi || attention.rounded_slopes) return attention.slopes.empty();
    const std::vector<double> usual = AlibiSlopes(attention.heads);
    return std::equal(usual.begin(), usual.end(), attention.slopes.begin(), attention.slopes.end(),
                      [&](double a, double b) { return std::abs(b * scale / a - 1) < 1e-6; });
  }

  void FindMissingOf(const RopeSpec& rope) {
    using enum RopeDescription::Type;
    const RopeDescription& d = rope.described;
    Need(d.type != kDynamic, "dynamic rotary scaling");
    const bool of_yarn = d.type == kYarn && rope.position_original == d.original;
    Need(rope.position_beta == 0 || (a_.scales_queries && of_yarn), "queries that are scaled with their position");
    Need(d.type != kYarn || (d.truncates && (a_.betas || (d.beta_fast == 32 && d.beta_slow == 1))),
         "the bounds of YaRN (truncate, beta_fast, beta_slow)");
    Need(&rope == &s_.ropes[0] || d.type == kPlain, "rotary scaling of layers with a window");
    Need((d.type != kLlama3 && d.type != kLongrope) || a_.factors, "rotary scaling with a factor for each frequency");
    Need(rope.interleaved == s_.ropes[0].interleaved && (!rope.interleaved || a_.interleaved),
         "the order of rotary pairs");
  }

  // Of the layers that have one; 0: none has.
  int64_t Window() const {
    for (size_t b = 0; b < s_.blocks.size(); ++b) {
      if (attention(b).window > 0) return attention(b).window;
    }
    return 0;
  }
  const ExpertsSpec* experts() const { return std::get_if<ExpertsSpec>(&s_.blocks.front().feed_forward); }

  void Set(const std::string& key, GgufValue value) {
    out_.metadata.Set(fmt::format("{}.{}", a_.name, key), std::move(value));
  }
  void SetCount(const std::string& key, int64_t n) { Set(key, static_cast<uint32_t>(n)); }
  void SetNumber(const std::string& key, double x) { Set(key, static_cast<float>(x)); }

  void WriteKeys() {
    out_.blocks = std::ssize(s_.blocks);
    out_.heads = first().heads;
    out_.kv_heads = first().kv_heads;
    SetCount("block_count", out_.blocks);
    SetCount("context_length", s_.facts.max_positions);
    SetCount("embedding_length", s_.hidden);
    SetCount("vocab_size", s_.facts.vocab);
    SetCount("attention.head_count", out_.heads);
    SetCount("attention.head_count_kv", out_.kv_heads);
    SetCount("attention.key_length", first().head_dim);
    SetCount("attention.value_length", first().head_dim);
    SetNumber(IsRms(s_.norm.kind) ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", s_.norm.eps);
    if (const ExpertsSpec* const e = experts(); e != nullptr) {
      out_.experts = e->experts;
      SetCount("feed_forward_length", e->ffn);
      SetCount("expert_feed_forward_length", e->ffn);
      SetCount("expert_count", e->experts);
      SetCount("expert_used_count", e->active);
      if (e->shared) SetCount("expert_shared_feed_forward_length", e->shared->ffn);
    } else {
      SetCount("feed_forward_length", std::get<MlpSpec>(s_.blocks.front().feed_forward).ffn);
    }
    if (first().score_cap != 0) SetNumber("attn_logit_softcapping", first().score_cap);
    if (s_.logit_cap != 0) SetNumber("final_logit_softcapping", s_.logit_cap);
    WriteWindows();
    if (!s_.ropes.empty()) WriteRope(s_.ropes[0]);
    if (s_.ropes.size() > 1) SetNumber("rope.freq_base_swa", s_.ropes[1].described.theta);
    for (const auto& [key, value] : a_.keys) Set(key, value);
    for (const auto& [key, name] : a_.numbers) {
      GgufNumbers& numbers = out_.numbers.emplace_back(GgufNumbers{.key = key, .parts = {}});
      for (size_t b = 0; b < s_.blocks.size(); ++b) numbers.parts.push_back(Named(PathOf(b) + name));
    }
  }

  void WriteWindows() {
    const int64_t window = Window();
    if (window == 0) return;
    if (!a_.windows) {
      out_.notices.push_back(
          fmt::format("llama.cpp's {} has no sliding window: from token {} on it attends to tokens that this model's "
                      "window leaves out",
                      a_.name, window + 1));
      return;
    }
    std::vector<bool> pattern;
    for (size_t b = 0; b < s_.blocks.size(); ++b) pattern.push_back(attention(b).window > 0);
    SetCount("attention.sliding_window", window);
    Set("attention.sliding_window_pattern", pattern);
  }

  void WriteRope(const RopeSpec& rope) {
    using enum RopeDescription::Type;
    const RopeDescription& d = rope.described;
    SetCount("rope.dimension_count", 2 * std::ssize(rope.inv_freq));
    SetNumber("rope.freq_base", d.theta);
    const auto add = [&](const char* name, const std::vector<double>& factors) {
      out_.tensors.push_back({.name = name, .numbers = {factors.begin(), factors.end()}});
    };
    if (d.type == kLlama3) {
      add("rope_freqs.weight", d.short_factor);
    } else if (d.type == kLinear) {
      Set("rope.scaling.type", std::string("linear"));
      SetNumber("rope.scaling.factor", d.factor);
    } else if (d.type == kYarn) {
      Set("rope.scaling.type", std::string("yarn"));
      SetNumber("rope.scaling.factor", d.factor);
      SetCount("rope.scaling.original_context_length", d.original);
      SetNumber("rope.scaling.yarn_beta_fast", d.beta_fast);
      SetNumber("rope.scaling.yarn_beta_slow", d.beta_slow);
      // llama.cpp multiplies by what is usual for YaRN itself.
      const double usual = d.factor <= 1 ? 1 : 0.1 * std::log(d.factor) + 1;
      if (rope.scale != usual) SetNumber("rope.scaling.attn_factor", rope.scale / usual);
    } else if (d.type == kLongrope) {
      SetCount("rope.scaling.original_context_length", d.original);
      SetNumber("rope.scaling.attn_factor", rope.scale);
      add("rope_factors_long.weight", d.long_factor);
      add("rope_factors_short.weight", d.short_factor);
    }
  }

  // Of a block's modules, in the model.
  std::string PathOf(size_t b) const { return fmt::format("{}{}{}.", s_.names.prefix, s_.names.blocks, b); }

  static StoredWeight Named(std::string name) { return {.name = std::move(name), .shape = {}, .source = {}}; }

  GgufTensor& Add(const std::string& name, std::vector<std::string> weights) {
    GgufTensor& tensor = out_.tensors.emplace_back(GgufTensor{.name = name});
    for (std::string& weight : weights) tensor.parts.push_back(Named(std::move(weight)));
    return tensor;
  }
  void AddNorm(const std::string& name, const NormSpec& norm, const std::string& module) {
    if (HasWeight(norm.kind)) {
      const bool plus_one = norm.kind == NormKind::kRmsPlusOne || norm.kind == NormKind::kLayerPlusOne;
      Add(name + ".weight", {module + ".weight"}).added = plus_one ? 1 : 0;
    }
    if (HasShift(norm.kind)) Add(name + ".bias", {module + ".bias"});
  }
  // `segments` of a fused projection are stored in `module`; without any it is all of it.
  void AddLinear(const std::string& name, const std::string& module, bool bias,
                 const std::vector<std::string>& segments = {}, RowOrder order = {}) {
    for (const char* what : {".weight", ".bias"}) {
      if (!bias && what == std::string_view(".bias")) continue;
      std::vector<std::string> weights;
      for (const std::string& segment : segments) weights.push_back(module + what + "/" + segment);
      if (segments.empty()) weights.push_back(module + what);
      Add(name + what, std::move(weights)).order = order;
    }
  }

  void WriteTensors() {
    const std::string& p = s_.names.prefix;
    Add("token_embd.weight", {p + s_.names.embedding + ".weight"});
    if (!s_.names.positions.empty()) Add("position_embd.weight", {p + s_.names.positions + ".weight"});
    if (!s_.names.embedding_norm.empty()) AddNorm(a_.embedding_norm, s_.norm, p + s_.names.embedding_norm);
    for (size_t b = 0; b < s_.blocks.size(); ++b) WriteBlock(b);
    if (!s_.names.final_norm.empty()) AddNorm("output_norm", s_.norm, p + s_.names.final_norm);
    const std::string head = s_.names.head + ".weight";
    if (!s_.facts.tied) Add("output.weight", {head});
    if (s_.facts.tied && a_.needs_head) Add("output.weight", {p + s_.names.embedding + ".weight"});
    if (a_.own_head) out_.head = "output.weight";
  }

  void WriteBlock(size_t b) {
    const DecoderBlock& block = s_.blocks[b];
    const std::string in = PathOf(b);
    const std::string blk = fmt::format("blk.{}.", b);
    const auto norm = [&](const char* name, const std::string& module) {
      if (!module.empty()) AddNorm(blk + name, block.norms.spec, in + module);
    };
    norm(a_.attn_norm, block.norms.mixer);
    WriteAttention(attention(b), blk, in);
    norm("post_attention_norm", block.norms.mixer_out);
    norm(a_.ffn_norm, block.norms.feed_forward);
    if (const auto* const mlp = std::get_if<MlpSpec>(&block.feed_forward); mlp != nullptr) {
      WriteMlp(*mlp, blk, "", in);
    } else {
      WriteExperts(std::get<ExpertsSpec>(block.feed_forward), blk, in);
    }
    norm("post_ffw_norm", block.norms.feed_forward_out);
  }

  void WriteAttention(const AttentionSpec& a, const std::string& blk, const std::string& in) {
    const std::string path = in + a.path;
    const bool reorders = a.rope != kNoRope && a_.interleaved && !s_.ropes[static_cast<size_t>(a.rope)].interleaved;
    // The rows that are not turned come in the same order in layers without an embedding: scores do not depend on it.
    const bool reordered =
        reorders || (a.rope == kNoRope && !s_.ropes.empty() && a_.interleaved && !s_.ropes[0].interleaved);
    const RowOrder order = reordered ? RowOrder{a.head_dim, 2 * std::ssize(s_.ropes[0].inv_freq)} : RowOrder{};
    if (a.fused_qkv && a_.fused_qkv) {
      AddLinear(blk + "attn_qkv", path + a.qkv, a.qkv_bias, {"q", "k", "v"});
    } else if (a.fused_qkv) {
      for (const char* part : {"q", "k", "v"}) {
        AddLinear(blk + "attn_" + part, path + a.qkv, a.qkv_bias, {part}, *part == 'v' ? RowOrder{} : order);
      }
    } else {
      AddLinear(blk + "attn_q", path + a.q, a.qkv_bias, {}, order);
      AddLinear(blk + "attn_k", path + a.k, a.qkv_bias, {}, order);
      AddLinear(blk + "attn_v", path + a.v, a.qkv_bias);
    }
    if (a.qk_norm != AttentionSpec::QkNorm::kNone) {
      AddNorm(blk + "attn_q_norm", a.norm, path + a.q_norm);
      AddNorm(blk + "attn_k_norm", a.norm, path + a.k_norm);
    }
    AddLinear(blk + "attn_output", path + a.out, a.out_bias);
  }

  // `suffix`: of names, "_shexp" for the MLP beside experts.
  void WriteMlp(const MlpSpec& m, const std::string& blk, const std::string& suffix, const std::string& in) {
    const auto name = [&](const char* part) { return blk + part + suffix; };
    if (m.gated && m.fused_gate_up && a_.fused_gate_up) {
      AddLinear(name("ffn_up"), in + m.gate_up, m.bias, {"gate", "up"});
    } else if (m.gated && m.fused_gate_up) {
      AddLinear(name("ffn_gate"), in + m.gate_up, m.bias, {"gate"});
      AddLinear(name("ffn_up"), in + m.gate_up, m.bias, {"up"});
    } else {
      if (m.gated) AddLinear(name("ffn_gate"), in + m.gate, m.bias);
      AddLinear(name("ffn_up"), in + m.up, m.bias);
    }
    AddLinear(name("ffn_down"), in + m.down, m.bias);
  }

  void WriteExperts(const ExpertsSpec& e, const std::string& blk, const std::string& in) {
    const std::string module = in + e.module + ".";
    Add(blk + "ffn_gate_inp.weight", {in + e.router + ".weight"});
    Add(blk + "ffn_gate_exps.weight", {module + e.gate_up + "/gate"});
    Add(blk + "ffn_up_exps.weight", {module + e.gate_up + "/up"});
    Add(blk + "ffn_down_exps.weight", {module + e.down});
    if (!e.shared) return;
    Add(blk + "ffn_gate_inp_shexp.weight", {in + e.shared_gate + ".weight"});
    WriteMlp(*e.shared, blk, "_shexp", in);
  }

  const DecoderSpec& s_;
  const GgufArchitecture& a_;
  std::vector<std::string> missing_;
  GgufModel out_;
};

}  // namespace

Result<GgufModel> DescribeGguf(const DecoderSpec& spec) {
  return Describer(spec).Run();
}

}  // namespace temper
