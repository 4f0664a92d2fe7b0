#include "model/gguf_description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "model/gguf_missing.h"
#include "model/gguf_parts.h"

namespace temper {
namespace {

bool IsRms(NormKind kind) {
  return kind == NormKind::kRms || kind == NormKind::kRmsPlusOne || kind == NormKind::kRmsPlain;
}

class Describer {
 public:
  explicit Describer(const DecoderSpec& spec)
      : s_(spec), a_(spec.gguf), parts_(spec, &out_.tensors), attention_(FirstAttention(spec)) {}

  Result<GgufModel> Run() {
    const std::string& family = s_.facts.architecture;
    if (a_.name == nullptr) {
      return Unsupported(fmt::format(
          "{} has no GGUF form: llama.cpp, which reads these files, does not compute it, or Temper does not "
          "write it yet (docs/howto/export.md lists the families). Export a Hugging Face folder instead, "
          "with --format hf",
          family));
    }
    const std::vector<std::string> missing = MissingInGguf(s_);
    if (!missing.empty()) {
      return Unsupported(
          fmt::format("{}: this model has what llama.cpp's architecture {} does not compute: {}. Export a Hugging Face "
                      "folder instead, with --format hf",
                      family, a_.name, fmt::join(missing, ", ")));
    }
    out_.architecture = a_.name;
    WriteKeys();
    WriteTensors();
    return std::move(out_);
  }

 private:
  void Set(const std::string& key, GgufValue value) {
    out_.metadata.Set(fmt::format("{}.{}", a_.name, key), std::move(value));
  }
  void SetCount(const std::string& key, int64_t n) { Set(key, static_cast<uint32_t>(n)); }
  void SetNumber(const std::string& key, double x) { Set(key, static_cast<float>(x)); }

  void WriteKeys() {
    out_.blocks = std::ssize(s_.blocks);
    SetCount("block_count", out_.blocks);
    SetCount("context_length", s_.facts.max_positions);
    SetCount("embedding_length", s_.hidden);
    SetCount("vocab_size", s_.facts.vocab);
    if (attention_ != nullptr) WriteHeads();
    SetNumber(IsRms(s_.norm.kind) ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", s_.norm.eps);
    WriteWidths();
    if (const ExpertsSpec* const e = FirstExperts(s_)) WriteExperts(*e);
    WriteMixers();
    if (s_.logit_cap != 0) SetNumber("final_logit_softcapping", s_.logit_cap);
    WriteWindows();
    if (!s_.ropes.empty()) WriteRope(s_.ropes[0]);
    if (s_.ropes.size() > 1) SetNumber("rope.freq_base_swa", s_.ropes[1].described.theta);
    for (const auto& [key, value] : a_.keys) Set(key, value);
    for (const auto& [key, name] : a_.numbers) {
      GgufNumbers& numbers = out_.numbers.emplace_back(GgufNumbers{.key = key, .parts = {}});
      for (size_t b = 0; b < s_.blocks.size(); ++b) {
        numbers.parts.push_back({.name = PathOf(b) + name, .shape = {}, .source = {}});
      }
    }
  }

  void WriteHeads() {
    out_.heads = attention_->heads;
    out_.kv_heads = attention_->kv_heads;
    SetCount("attention.head_count", out_.heads);
    const bool all = std::all_of(s_.blocks.begin(), s_.blocks.end(), [](const auto& b) { return AttentionOf(b); });
    if (all || a_.mixer == GgufArchitecture::Mixer::kGatedDelta) {
      SetCount("attention.head_count_kv", out_.kv_heads);
    } else {  // 0: a layer without attention
      std::vector<int32_t> heads;
      for (const DecoderBlock& block : s_.blocks) {
        heads.push_back(AttentionOf(block) == nullptr ? 0 : static_cast<int32_t>(out_.kv_heads));
      }
      Set("attention.head_count_kv", heads);
    }
    SetCount("attention.key_length", attention_->head_dim);
    SetCount("attention.value_length", attention_->head_dim);
    if (attention_->score_cap != 0) SetNumber("attn_logit_softcapping", attention_->score_cap);
  }

  // Of MLPs; where a block is of one part, 0 where it has none.
  void WriteWidths() {
    if (a_.one_part) {
      std::vector<int32_t> widths;
      for (const DecoderBlock& block : s_.blocks) {
        widths.push_back(MlpOf(block) == nullptr ? 0 : static_cast<int32_t>(MlpOf(block)->ffn));
      }
      Set("feed_forward_length", widths);
      return;
    }
    const MlpSpec* const mlp = MlpOf(s_.blocks.front());
    SetCount("feed_forward_length", mlp != nullptr ? mlp->ffn : FirstExperts(s_)->ffn);
  }

  void WriteExperts(const ExpertsSpec& e) {
    out_.experts = e.experts;
    SetCount("expert_feed_forward_length", e.ffn);
    SetCount("expert_count", e.experts);
    SetCount("expert_used_count", e.active);
    if (e.shared) SetCount("expert_shared_feed_forward_length", e.shared->ffn);
    if (a_.shared_experts) SetCount("expert_shared_count", e.shared ? e.shared->ffn / e.ffn : 0);
    if (a_.dense_first) {
      const auto first = std::find_if(s_.blocks.begin(), s_.blocks.end(), [](const DecoderBlock& block) {
        return std::holds_alternative<ExpertsSpec>(block.feed_forward);
      });
      SetCount("leading_dense_block_count", first - s_.blocks.begin());
    }
    if (!a_.routes) return;
    constexpr int64_t kSoftmax = 1, kSigmoid = 2;  // llama_expert_gating_func_type
    SetCount("expert_gating_func", e.sigmoid ? kSigmoid : kSoftmax);
    Set("expert_weights_norm", e.normalise);
    SetNumber("expert_weights_scale", e.scale);
    if (e.groups > 0) {
      SetCount("expert_group_count", e.groups);
      SetCount("expert_group_used_count", e.top_groups);
    }
  }

  void WriteMixers() {
    for (const DecoderBlock& block : s_.blocks) {
      if (const auto* const conv = std::get_if<ShortConvSpec>(&block.mixer)) {
        SetCount("shortconv.l_cache", conv->taps);
      } else if (const auto* const delta = std::get_if<GatedDeltaSpec>(&block.mixer)) {
        WriteRecurrence(delta->taps, delta->value_heads * delta->value_dim, delta->key_dim, delta->value_heads,
                        delta->key_heads);
        return WriteRecurrentLayers();
      } else if (const Mamba2Spec* const mamba = Mamba2Of(block)) {
        WriteRecurrence(mamba->taps, mamba->heads * mamba->value_dim, mamba->state_dim, mamba->heads, mamba->groups);
        if (mamba->least_step > 0) {
          out_.notices.push_back(
              fmt::format("llama.cpp's {} has no least step of its recurrence, which is {} here (time_step_min): where "
                          "steps would be smaller, answers may differ",
                          a_.name, mamba->least_step));
        }
        return;
      } else if (const auto* const latent = std::get_if<LatentAttentionSpec>(&block.mixer)) {
        return WriteLatent(*latent);
      }
    }
  }

  void WriteRecurrence(int64_t taps, int64_t inner, int64_t state, int64_t heads, int64_t groups) {
    SetCount("ssm.conv_kernel", taps);
    SetCount("ssm.inner_size", inner);
    SetCount("ssm.state_size", state);
    SetCount("ssm.time_step_rank", heads);  // the place where llama.cpp has their number
    SetCount("ssm.group_count", groups);
  }

  // Every so many layers one is of attention, if so; the list of them all is what newer programs read.
  void WriteRecurrentLayers() {
    std::vector<bool> recurrent;
    for (const DecoderBlock& block : s_.blocks) recurrent.push_back(AttentionOf(block) == nullptr);
    const int64_t interval = std::find(recurrent.begin(), recurrent.end(), false) - recurrent.begin() + 1;
    bool regular = true;
    for (size_t b = 0; b < recurrent.size(); ++b) {
      regular = regular && recurrent[b] == ((static_cast<int64_t>(b) + 1) % interval != 0);
    }
    if (regular) SetCount("full_attention_interval", interval);
    Set("attention.recurrent_layers", recurrent);
  }

  void WriteLatent(const LatentAttentionSpec& l) {
    out_.heads = l.heads;
    out_.kv_heads = 1;
    SetCount("attention.head_count", l.heads);
    SetCount("attention.head_count_kv", 1);
    SetCount("attention.q_lora_rank", l.q_rank);
    SetCount("attention.kv_lora_rank", l.kv_rank);
    SetCount("attention.key_length", l.kv_rank + l.rope_dim);
    SetCount("attention.value_length", l.kv_rank);
    SetCount("attention.key_length_mla", l.head_dim + l.rope_dim);
    SetCount("attention.value_length_mla", l.v_head_dim);
  }

  void WriteWindows() {
    const int64_t window = WindowOf(s_);
    if (window == 0) return;
    if (!a_.windows) {
      out_.notices.push_back(
          fmt::format("llama.cpp's {} has no sliding window: from token {} on it attends to tokens that this model's "
                      "window leaves out",
                      a_.name, window + 1));
      return;
    }
    std::vector<bool> pattern;
    for (const DecoderBlock& block : s_.blocks) {
      pattern.push_back(AttentionOf(block) != nullptr && AttentionOf(block)->window > 0);
    }
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

  void WriteTensors() {
    const std::string& p = s_.names.prefix;
    const std::string embedding = p + s_.names.embedding + ".weight";
    const double embedding_scale = a_.folded_scales ? s_.embedding_scale : 1;
    parts_.Add("token_embd.weight", {embedding}).scale = embedding_scale;
    if (!s_.names.positions.empty()) parts_.Add("position_embd.weight", {p + s_.names.positions + ".weight"});
    if (!s_.names.embedding_norm.empty()) {
      parts_.AddNorm(a_.embedding_norm, s_.norm, p + s_.names.embedding_norm);
    }
    for (size_t b = 0; b < s_.blocks.size(); ++b) WriteBlock(b);
    if (!s_.names.final_norm.empty()) parts_.AddNorm(a_.final_norm, s_.norm, p + s_.names.final_norm);
    if (a_.folded_scales) out_.head_scale = s_.logit_scale;
    if (!s_.facts.tied || a_.needs_head) {
      const std::string head = s_.facts.tied ? embedding : s_.names.head + ".weight";
      parts_.Add("output.weight", {head}).scale = out_.head_scale;
    }
    if (a_.own_head) out_.head = "output.weight";
  }

  void WriteBlock(size_t b) {
    const DecoderBlock& block = s_.blocks[b];
    const std::string in = PathOf(b);
    const std::string blk = fmt::format("blk.{}.", b);
    const auto norm = [&](const char* name, const std::string& module) {
      if (!module.empty()) parts_.AddNorm(blk + name, block.norms.spec, in + module);
    };
    norm(a_.attn_norm, block.norms.mixer);
    parts_.AddMixer(block.mixer, blk, in);
    norm("post_attention_norm", block.norms.mixer_out);
    norm(a_.ffn_norm, block.norms.feed_forward);
    if (a_.bare_ffn_norm) out_.tensors.back().name = blk + a_.ffn_norm;
    parts_.AddFeedForward(block.feed_forward, blk, in);
    norm("post_ffw_norm", block.norms.feed_forward_out);
  }

  const DecoderSpec& s_;
  const GgufArchitecture& a_;
  GgufModel out_;
  GgufParts parts_;
  const AttentionSpec* const attention_;  // the first; nullptr: it is latent
};

}  // namespace

Result<GgufModel> DescribeGguf(const DecoderSpec& spec) {
  return Describer(spec).Run();
}

}  // namespace temper
