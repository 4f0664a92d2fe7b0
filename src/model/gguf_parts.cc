#include "model/gguf_parts.h"

#include <cmath>
#include <iterator>
#include <utility>

namespace temper {
namespace {

bool HasWeight(NormKind kind) {
  return kind != NormKind::kRmsPlain && kind != NormKind::kLayerPlain;
}
bool HasShift(NormKind kind) {
  return kind == NormKind::kLayer || kind == NormKind::kLayerPlusOne;
}

// Behind `before` rows: heads of `width` rows, of which files have `each` behind each other for every one of `groups`,
// and the GGUF file the first of each group, then the second.
std::vector<GgufRun> InTurn(int64_t before, int64_t groups, int64_t each, int64_t width) {
  std::vector<GgufRun> runs;
  if (before > 0) runs.push_back({0, before});
  for (int64_t i = 0; i < each; ++i) {
    for (int64_t g = 0; g < groups; ++g) runs.push_back({before + (g * each + i) * width, width});
  }
  return runs;
}

// Of `parts` that follow each other, as many times `width` rows each: one group of each in turn, as files have them.
std::vector<GgufRun> Interleaved(int64_t parts, int64_t groups, int64_t width) {
  std::vector<GgufRun> runs;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t p = 0; p < parts; ++p) runs.push_back({(p * groups + g) * width, width});
  }
  return runs;
}

}  // namespace

GgufTensor& GgufParts::Add(const std::string& name, std::vector<std::string> weights) {
  GgufTensor& tensor = out_->emplace_back(GgufTensor{.name = name});
  for (std::string& weight : weights) tensor.parts.push_back({.name = std::move(weight), .shape = {}, .source = {}});
  return tensor;
}

void GgufParts::AddNorm(const std::string& name, const NormSpec& norm, const std::string& module) {
  if (HasWeight(norm.kind)) {
    const bool plus_one = norm.kind == NormKind::kRmsPlusOne || norm.kind == NormKind::kLayerPlusOne;
    Add(name + ".weight", {module + ".weight"}).added = plus_one ? 1 : 0;
  }
  if (HasShift(norm.kind)) Add(name + ".bias", {module + ".bias"});
}

void GgufParts::AddLinear(const std::string& name, const std::string& module, const LinearParts& parts) {
  for (const char* what : {".weight", ".bias"}) {
    if (!parts.bias && what == std::string_view(".bias")) continue;
    std::vector<std::string> weights;
    for (const std::string& segment : parts.segments) weights.push_back(module + what + "/" + segment);
    if (parts.segments.empty()) weights.push_back(module + what);
    GgufTensor& tensor = Add(name + what, std::move(weights));
    tensor.order = parts.order;
    tensor.rows = parts.rows;
    tensor.scale = what == std::string_view(".bias") ? parts.bias_scale : parts.scale;
  }
}

void GgufParts::AddMixer(const Mixer& mixer, const std::string& blk, const std::string& in) {
  if (const auto* const a = std::get_if<AttentionSpec>(&mixer)) AddAttention(*a, blk, in);
  if (const auto* const l = std::get_if<LatentAttentionSpec>(&mixer)) AddLatent(*l, blk, in);
  if (const auto* const c = std::get_if<ShortConvSpec>(&mixer)) AddShortConv(*c, blk, in);
  if (const auto* const d = std::get_if<GatedDeltaSpec>(&mixer)) AddDelta(*d, blk, in);
  if (const auto* const m = std::get_if<Mamba2Spec>(&mixer)) AddMamba(*m, 1, blk, in);
  if (const auto* const m = std::get_if<MlpSpec>(&mixer)) AddMlp(*m, blk, "", in);
  if (const auto* const both = std::get_if<AttentionBesideMamba2Spec>(&mixer)) {
    AddMamba(both->mamba, both->mamba_out_scale, blk, in);
    AddAttention(both->attention, blk, in, both->attention_in_scale, both->attention_out_scale);
  }
}

void GgufParts::AddFeedForward(const FeedForward& feed_forward, const std::string& blk, const std::string& in) {
  if (const auto* const m = std::get_if<MlpSpec>(&feed_forward)) AddMlp(*m, blk, "", in);
  if (const auto* const e = std::get_if<ExpertsSpec>(&feed_forward)) AddExperts(*e, blk, in);
}

void GgufParts::AddAttention(const AttentionSpec& a, const std::string& blk, const std::string& in, double in_scale,
                             double out_scale) {
  const std::string path = in + a.path;
  const bool reorders = a.rope != kNoRope && a_.interleaved && !s_.ropes[static_cast<size_t>(a.rope)].interleaved;
  // The rows that are not turned come in the same order in layers without an embedding: scores do not depend on it.
  const bool reordered =
      reorders || (a.rope == kNoRope && !s_.ropes.empty() && a_.interleaved && !s_.ropes[0].interleaved);
  const RowOrder order = reordered ? RowOrder{a.head_dim, 2 * std::ssize(s_.ropes[0].inv_freq)} : RowOrder{};
  // Scores are linear in keys.
  double key_scale = 1;
  if (a_.folded_scales && a.scale != 0) key_scale = a.scale * std::sqrt(static_cast<double>(a.head_dim));
  const bool bias = a.qkv_bias;
  if (a.fused_qkv && a_.fused_qkv) {
    AddLinear(blk + "attn_qkv", path + a.qkv, {.bias = bias, .segments = {"q", "k", "v"}});
  } else if (a.fused_qkv) {
    for (const char* part : {"q", "k", "v"}) {
      AddLinear(blk + "attn_" + part, path + a.qkv,
                {.bias = bias, .segments = {part}, .order = *part == 'v' ? RowOrder{} : order});
    }
  } else {
    if (a.gated) {
      AddLinear(blk + "attn_q", path + a.q,
                {.bias = bias, .segments = {"q", "gate"}, .rows = Interleaved(2, a.heads, a.head_dim)});
    } else {
      AddLinear(blk + "attn_q", path + a.q, {.bias = bias, .order = order, .scale = in_scale});
    }
    AddLinear(blk + "attn_k", path + a.k,
              {.bias = bias, .order = order, .scale = in_scale * key_scale, .bias_scale = key_scale});
    AddLinear(blk + "attn_v", path + a.v, {.bias = bias, .scale = in_scale});
  }
  if (a.qk_norm != AttentionSpec::QkNorm::kNone) {
    AddNorm(blk + "attn_q_norm", a.norm, path + a.q_norm);
    AddNorm(blk + "attn_k_norm", a.norm, path + a.k_norm);
  }
  AddLinear(blk + "attn_output", path + a.out, {.bias = a.out_bias, .scale = out_scale, .bias_scale = out_scale});
}

// llama.cpp takes all keys as one of latents: a head's queries go through its part of kv_b, turned.
void GgufParts::AddLatent(const LatentAttentionSpec& l, const std::string& blk, const std::string& in) {
  const std::string path = in + l.path;
  if (l.q_rank > 0) {
    AddLinear(blk + "attn_q_a", path + l.q_a, {});
    AddNorm(blk + "attn_q_a_norm", l.norm, path + l.q_norm);
    AddLinear(blk + "attn_q_b", path + l.q_b, {});
  } else {
    AddLinear(blk + "attn_q", path + l.q, {});
  }
  AddLinear(blk + "attn_kv_a_mqa", path + l.kv_a, {.segments = {"latents", "rope"}});
  AddNorm(blk + "attn_kv_a_norm", l.norm, path + l.kv_norm);
  GgufTensor& keys = Add(blk + "attn_k_b.weight", {path + l.kv_b + ".weight/k"});
  keys.turned = l.head_dim;
  keys.shape = {l.heads, l.kv_rank, l.head_dim};
  GgufTensor& values = Add(blk + "attn_v_b.weight", {path + l.kv_b + ".weight/v"});
  values.shape = {l.heads, l.v_head_dim, l.kv_rank};
  AddLinear(blk + "attn_output", path + l.out, {});
}

void GgufParts::AddShortConv(const ShortConvSpec& c, const std::string& blk, const std::string& in) {
  const std::string path = in + c.path;
  AddLinear(blk + "shortconv.in_proj", path + c.in, {.segments = {"b", "c", "x"}});
  Add(blk + "shortconv.conv.weight", {path + c.conv + ".weight"}).shape = {s_.hidden, c.taps};
  AddLinear(blk + "shortconv.out_proj", path + c.out, {});
}

void GgufParts::AddDelta(const GatedDeltaSpec& d, const std::string& blk, const std::string& in) {
  const std::string path = in + d.path;
  const int64_t K = d.key_heads, each = d.value_heads / d.key_heads, keys = 2 * K * d.key_dim;
  const bool in_turn = a_.tiled_values && each > 1;
  const auto rows = [&](int64_t before, int64_t width) {
    return in_turn ? InTurn(before, K, each, width) : std::vector<GgufRun>{};
  };
  if (d.qkvz.empty()) {
    AddLinear(blk + "attn_qkv", path + d.qkv, {.segments = {"q", "k", "v"}, .rows = rows(keys, d.value_dim)});
    AddLinear(blk + "attn_gate", path + d.z, {.rows = rows(0, d.value_dim)});
    AddLinear(blk + "ssm_beta", path + d.b, {.rows = rows(0, 1)});
    AddLinear(blk + "ssm_alpha", path + d.a, {.rows = rows(0, 1)});
  } else {
    AddLinear(blk + "attn_qkv", path + d.qkvz, {.segments = {"q", "k", "v"}});
    AddLinear(blk + "attn_gate", path + d.qkvz, {.segments = {"z"}});
    AddLinear(blk + "ssm_ba", path + d.ba, {.segments = {"b", "a"}, .rows = Interleaved(2, K, each)});
  }
  const std::string conv = path + d.conv + ".weight/";
  GgufTensor& taps = Add(blk + "ssm_conv1d.weight", {conv + "q", conv + "k", conv + "v"});
  taps.rows = rows(keys, d.value_dim);
  taps.shape = {keys + d.value_heads * d.value_dim, d.taps};
  Add(blk + "ssm_dt.bias", {path + d.dt_bias}).rows = rows(0, 1);
  GgufTensor& decay = Add(blk + "ssm_a", {path + d.a_log});
  decay.rows = rows(0, 1);
  decay.change = GgufChange::kMinusExp;
  AddNorm(blk + "ssm_norm", {NormKind::kRms, d.norm_eps}, path + d.norm);
  AddLinear(blk + "ssm_out", path + d.out, {});
  out_->back().columns = rows(0, d.value_dim);
}

void GgufParts::AddMamba(const Mamba2Spec& m, double out_scale, const std::string& blk, const std::string& in) {
  const std::string path = in + m.path;
  const int64_t width = m.heads * m.value_dim, shared = m.groups * m.state_dim, channels = width + 2 * shared;
  std::vector<GgufRun> runs;
  const int64_t rows[] = {width, width, shared, shared, m.heads};  // of z, x, b, c, dt
  for (size_t i = 0, first = 0; i < std::size(rows); first += static_cast<size_t>(rows[i++])) {
    runs.push_back({static_cast<int64_t>(first), rows[i], m.in_scale * m.scales[i]});
  }
  AddLinear(blk + "ssm_in", path + m.in, {.segments = {"z", "x", "b", "c", "dt"}});
  if (a_.folded_scales) out_->back().rows = std::move(runs);
  for (const char* what : {".weight", ".bias"}) {
    const std::string conv = path + m.conv + what + "/";
    GgufTensor& taps = Add(blk + "ssm_conv1d" + what, {conv + "x", conv + "b", conv + "c"});
    if (what == std::string_view(".weight")) taps.shape = {channels, m.taps};
  }
  Add(blk + "ssm_dt.bias", {path + m.dt_bias});
  GgufTensor& decay = Add(blk + "ssm_a", {path + m.a_log});
  decay.change = GgufChange::kMinusExp;
  decay.shape = {m.heads, 1};
  Add(blk + "ssm_d", {path + m.d}).shape = {m.heads, 1};
  if (m.norms != Mamba2Spec::Norm::kNone) {
    AddNorm(blk + "ssm_norm", {NormKind::kRms, m.norm_eps}, path + m.norm);
    out_->back().shape = {m.groups, width / m.groups};
  }
  AddLinear(blk + "ssm_out", path + m.out, {.scale = out_scale});
}

// `suffix`: of names, "_shexp" for the MLP beside experts.
void GgufParts::AddMlp(const MlpSpec& m, const std::string& blk, const std::string& suffix, const std::string& in) {
  const auto name = [&](const char* part) { return blk + part + suffix; };
  if (m.gated && m.fused_gate_up && a_.fused_gate_up) {
    AddLinear(name("ffn_up"), in + m.gate_up, {.bias = m.bias, .segments = {"gate", "up"}});
  } else if (m.gated && m.fused_gate_up) {
    AddLinear(name("ffn_gate"), in + m.gate_up, {.bias = m.bias, .segments = {"gate"}});
    AddLinear(name("ffn_up"), in + m.gate_up, {.bias = m.bias, .segments = {"up"}});
  } else {
    if (m.gated) {
      AddLinear(name("ffn_gate"), in + m.gate, {.bias = m.bias, .scale = m.gate_scale, .bias_scale = m.gate_scale});
    }
    AddLinear(name("ffn_up"), in + m.up, {.bias = m.bias});
  }
  AddLinear(name("ffn_down"), in + m.down, {.bias = m.bias, .scale = m.out_scale, .bias_scale = m.out_scale});
}

void GgufParts::AddExperts(const ExpertsSpec& e, const std::string& blk, const std::string& in) {
  const std::string module = in + e.module + ".";
  Add(blk + "ffn_gate_inp.weight", {in + e.router + ".weight"});
  if (!e.choice_bias.empty()) Add(blk + "exp_probs_b.bias", {in + e.choice_bias});
  Add(blk + "ffn_gate_exps.weight", {module + e.gate_up + "/gate"});
  Add(blk + "ffn_up_exps.weight", {module + e.gate_up + "/up"});
  Add(blk + "ffn_down_exps.weight", {module + e.down});
  if (!e.shared) return;
  if (!e.shared_gate.empty()) Add(blk + "ffn_gate_inp_shexp.weight", {in + e.shared_gate + ".weight"});
  AddMlp(*e.shared, blk, "_shexp", in);
}

}  // namespace temper
