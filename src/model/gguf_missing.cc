#include "model/gguf_missing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/alibi.h"

namespace temper {
namespace {

using Other = GgufArchitecture::Mixer;

class Finder {
 public:
  explicit Finder(const DecoderSpec& spec) : s_(spec), a_(spec.gguf) {}

  std::vector<std::string> Run() {
    if (!a_.missing.empty()) Need(false, a_.missing);
    for (const DecoderBlock& block : s_.blocks) FindKind(block);
    Need(FirstAttention(s_) != nullptr || a_.mixer == Other::kLatent, "a model without attention");
    if (!missing_.empty()) return std::move(missing_);
    FindOrder();
    for (size_t b = 0; b < s_.blocks.size(); ++b) {
      const DecoderBlock& block = s_.blocks[b];
      if (const AttentionSpec* const attention = AttentionOf(block)) FindAttention(block, *attention, b);
      if (const Mamba2Spec* const mamba = Mamba2Of(block)) FindMamba(*mamba);
      if (const auto* const delta = std::get_if<GatedDeltaSpec>(&block.mixer)) {
        Need(delta->key_dim == delta->value_dim, "a delta net whose keys and values differ in width");
      }
      if (const auto* const conv = std::get_if<ShortConvSpec>(&block.mixer)) {
        Need(!conv->bias, "biases of convolutions");
      }
      if (const auto* const latent = std::get_if<LatentAttentionSpec>(&block.mixer)) FindLatent(*latent);
      FindFeedForward(block);
    }
    FindModel();
    for (const RopeSpec& rope : s_.ropes) FindRope(rope);
    return std::move(missing_);
  }

 private:
  void Need(bool holds, std::string what) {
    if (!holds && std::find(missing_.begin(), missing_.end(), what) == missing_.end())
      missing_.push_back(std::move(what));
  }

  void FindKind(const DecoderBlock& block) {
    const bool attention = std::holds_alternative<AttentionSpec>(block.mixer);
    const bool known =
        (attention && a_.mixer != Other::kLatent) ||
        (std::holds_alternative<ShortConvSpec>(block.mixer) && a_.mixer == Other::kShortConv) ||
        (std::holds_alternative<GatedDeltaSpec>(block.mixer) && a_.mixer == Other::kGatedDelta) ||
        (std::holds_alternative<Mamba2Spec>(block.mixer) && a_.mixer == Other::kMamba2) ||
        (std::holds_alternative<LatentAttentionSpec>(block.mixer) && a_.mixer == Other::kLatent) ||
        (std::holds_alternative<AttentionBesideMamba2Spec>(block.mixer) && a_.mixer == Other::kBesideMamba2) ||
        (std::holds_alternative<MlpSpec>(block.mixer) && a_.one_part);
    Need(known, "blocks without attention");
    Need(std::holds_alternative<std::monostate>(block.feed_forward) == a_.one_part, "blocks of one part");
  }

  // Layers that differ stand where the architecture has them.
  void FindOrder() {
    bool experts = false;
    for (const DecoderBlock& block : s_.blocks) {
      const bool has = std::holds_alternative<ExpertsSpec>(block.feed_forward);
      Need(has || !experts, "layers with an MLP behind layers with experts");
      experts = experts || has;
    }
    const bool first = std::holds_alternative<ExpertsSpec>(s_.blocks.front().feed_forward);
    Need(!experts || first || a_.dense_first, "layers with experts beside layers with an MLP");
  }

  void FindAttention(const DecoderBlock& block, const AttentionSpec& attention, size_t b) {
    Need(!attention.out_bias || a_.out_bias, "biases of attention's output");
    const double usual = a_.score_scale != 0 ? a_.score_scale : 1 / std::sqrt(static_cast<double>(attention.head_dim));
    Need(attention.scale == 0 || a_.folded_scales || std::abs(attention.scale / usual - 1) < 1e-6,
         "the scale of scores");
    Need(attention.score_cap == 0 || a_.score_cap, "the cap of scores");
    Need(attention.gated == a_.gated_attention, attention.gated ? "gates of attention" : "attention without gates");
    Need(attention.head_gate.empty(), "gates of attention");
    Need(attention.clip == 0 || a_.clips, "bounds of q, k and v (clip_qkv)");
    Need(HasSlopes(attention, usual), "ALiBi");
    Need(attention.sink.empty(), "sinks of attention");
    Need(attention.qk_norm != AttentionSpec::QkNorm::kEachHead, "norms of q and k with scales of each head");
    Need(attention.heads == attention.kv_heads || !a_.same_kv_heads, "fewer KV heads than heads");
    Need(!attention.v_is_k && !attention.norms_v && attention.takes.empty() && attention.publishes.empty(),
         "values that are keys, normed, or another layer's");
    const AttentionSpec& first = *FirstAttention(s_);
    Need(attention.heads == first.heads && attention.kv_heads == first.kv_heads && attention.head_dim == first.head_dim,
         "layers with different heads");
    Need(block.parallel == false || a_.parallel, "attention and MLP side by side");
    if (attention.window > 0 && a_.windows) {
      Need(attention.window == WindowOf(s_), "windows of different sizes");
    }
    // A layer without a window has the first embedding, one with a window the last.
    const int rope = attention.window > 0 && s_.ropes.size() > 1 ? 1 : 0;
    bool turns = !s_.ropes.empty();
    if (a_.rope == GgufArchitecture::Rope::kThreeOfFour) turns = (b + 1) % 4 != 0;
    if (a_.rope == GgufArchitecture::Rope::kWindowed) turns = attention.window > 0 || WindowOf(s_) == 0;
    Need(attention.rope == (turns ? rope : kNoRope), "which layers have a rotary embedding");
  }

  // The slopes that the architecture computes with, be it none. `scale`: of scores, to which llama.cpp adds them.
  bool HasSlopes(const AttentionSpec& attention, double scale) const {
    if (!a_.alibi || attention.rounded_slopes) return attention.slopes.empty();
    const std::vector<double> usual = AlibiSlopes(attention.heads);
    return std::equal(usual.begin(), usual.end(), attention.slopes.begin(), attention.slopes.end(),
                      [&](double a, double b) { return std::abs(b * scale / a - 1) < 1e-6; });
  }

  void FindMamba(const Mamba2Spec& mamba) {
    Need(!mamba.in_bias && !mamba.out_bias, "biases of a recurrence's products");
    Need(mamba.norms != Mamba2Spec::Norm::kBeforeGate, "a recurrence's norm in front of its gate");
    Need(mamba.norms == Mamba2Spec::Norm::kAfterGate || a_.mixer == Other::kBesideMamba2,
         "a recurrence without a norm");
    Need(mamba.conv_bias, "convolutions without biases");
    // Where softplus gives less.
    Need(mamba.least_step == 0 || a_.one_part, "the least step of a recurrence");
    Need(a_.mixer != Other::kMamba2 || a_.one_part || mamba.heads * mamba.value_dim == 2 * s_.hidden,
         "a recurrence that is not twice as wide as the model");
  }

  void FindLatent(const LatentAttentionSpec& latent) {
    Need(!latent.bias, "biases of attention");
    Need(latent == std::get<LatentAttentionSpec>(s_.blocks.front().mixer), "layers with different heads");
    const RopeSpec& rope = s_.ropes[static_cast<size_t>(latent.rope)];
    Need(rope.interleaved, "the order of rotary pairs");
    Need(FirstExperts(s_) != nullptr, "latent attention without experts");
    // It goes by the number of layers where it takes queries to be made without latents.
    const size_t blocks = s_.blocks.size();
    const bool lite = blocks == 26 || blocks == 27 || (blocks == 48 && s_.facts.vocab == 128256);
    Need(!lite || latent.q_rank == 0, "latents of queries in a model of so many layers");
    Need(rope.described.type != RopeDescription::Type::kYarn, "YaRN beside latents");
    Need(latent.scale == 0, "the scale of scores");
  }

  void FindFeedForward(const DecoderBlock& block) {
    Need(block.residual_scale == 1 || a_.scales_residual, "the scale of what blocks add");
    Need(!block.norms.after_sums, "norms after the sums");
    Need(!block.norms.in_sums, "sums that go on from norms");
    Need(block.factor.empty(), "factors of blocks");
    if (const MlpSpec* const mlp = MlpOf(block); mlp != nullptr) {
      Need(!mlp->bias || a_.mlp_bias, "biases of the MLP");
      Need(mlp->activation == a_.activation, "the activation of the MLP");
      Need((mlp->gate_scale == 1 && mlp->out_scale == 1) || a_.folded_scales, "scales of the MLP");
      Need(a_.one_part || FirstMlp() == nullptr || mlp->ffn == FirstMlp()->ffn, "MLPs of different widths");
    } else if (const auto* const experts = std::get_if<ExpertsSpec>(&block.feed_forward); experts != nullptr) {
      Need(experts->activation == a_.activation, "the activation of the experts");
      Need(experts->normalise == a_.normalises_experts || a_.routes,
           "how the weights of experts add up (norm_topk_prob)");
      Need((!experts->sigmoid && experts->choice_bias.empty() && experts->scale == 1 && experts->groups == 0) ||
               a_.routes,
           "how experts are chosen");
      // llama.cpp adds up a group's two best scores, where some of DeepSeek-V2's take the best one.
      Need(experts->groups == 0 || experts->sigmoid, "groups of experts that are chosen by their best one");
      Need(experts->clamp == 0, "bounds of the experts' gates");
      Need(!experts->shared || !a_.shared_experts || experts->shared->ffn % experts->ffn == 0,
           "a shared expert that is not as wide as several others");
    }
  }

  const MlpSpec* FirstMlp() const {
    for (const DecoderBlock& block : s_.blocks) {
      if (MlpOf(block) != nullptr) return MlpOf(block);
    }
    return nullptr;
  }

  void FindModel() {
    Need(s_.embedding_scale == 1 || a_.scales_embedding || a_.folded_scales, "the scale of embeddings");
    Need(s_.logit_scale == 1 || a_.scales_logits || a_.folded_scales, "the scale of logits");
    Need(s_.logit_cap == 0 || a_.logit_cap, "the cap of logits");
    Need(s_.embed == 0 || s_.embed == s_.hidden, "embeddings of another width");
    Need(s_.position_offset == 0, "the offset of positions");
    Need(s_.sinusoids.empty(), "sinusoidal positions");
    Need(s_.names.embedding_norm.empty() || a_.embedding_norm != nullptr, "the norm of embeddings");
    Need(s_.embedding_rows == 0, "a head of fewer words than the embedding");
    Need(s_.per_layer.width == 0, "what each layer adds of its own to a token");
    Need(s_.head_layer.module.empty(), "a layer in front of the head");
    Need(s_.facts.tied || a_.own_head, "a head that is not the embedding");
    Need(!s_.head_bias, "a bias of the head");
    Need(s_.facts.classes == 0, "a head of classes or of a reward");
    const AttentionSpec* const first = FirstAttention(s_);
    Need(a_.any_head_dim || first == nullptr || first->heads * first->head_dim == s_.hidden,
         "heads of another width (head_dim)");
  }

  void FindRope(const RopeSpec& rope) {
    using enum RopeDescription::Type;
    const RopeDescription& d = rope.described;
    Need(d.type != kDynamic, "dynamic rotary scaling");
    Need(d.type != kProportional, "proportional rotary embeddings");
    const bool of_yarn = d.type == kYarn && rope.position_original == d.original;
    Need(rope.position_beta == 0 || (a_.scales_queries && of_yarn), "queries that are scaled with their position");
    Need(d.type != kYarn || (d.truncates && (a_.betas || (d.beta_fast == 32 && d.beta_slow == 1))),
         "the bounds of YaRN (truncate, beta_fast, beta_slow)");
    Need(&rope == &s_.ropes[0] || d.type == kPlain, "rotary scaling of layers with a window");
    Need((d.type != kLlama3 && d.type != kLongrope) || a_.factors, "rotary scaling with a factor for each frequency");
    Need(rope.interleaved == s_.ropes[0].interleaved && (!rope.interleaved || a_.interleaved),
         "the order of rotary pairs");
  }

  const DecoderSpec& s_;
  const GgufArchitecture& a_;
  std::vector<std::string> missing_;
};

}  // namespace

const AttentionSpec* AttentionOf(const DecoderBlock& block) {
  if (const auto* const both = std::get_if<AttentionBesideMamba2Spec>(&block.mixer)) return &both->attention;
  return std::get_if<AttentionSpec>(&block.mixer);
}

const AttentionSpec* FirstAttention(const DecoderSpec& spec) {
  for (const DecoderBlock& block : spec.blocks) {
    if (AttentionOf(block) != nullptr) return AttentionOf(block);
  }
  return nullptr;
}

const Mamba2Spec* Mamba2Of(const DecoderBlock& block) {
  if (const auto* const both = std::get_if<AttentionBesideMamba2Spec>(&block.mixer)) return &both->mamba;
  return std::get_if<Mamba2Spec>(&block.mixer);
}

const ExpertsSpec* FirstExperts(const DecoderSpec& spec) {
  for (const DecoderBlock& block : spec.blocks) {
    if (const auto* const experts = std::get_if<ExpertsSpec>(&block.feed_forward)) return experts;
  }
  return nullptr;
}

const MlpSpec* MlpOf(const DecoderBlock& block) {
  if (const auto* const mlp = std::get_if<MlpSpec>(&block.mixer)) return mlp;
  return std::get_if<MlpSpec>(&block.feed_forward);
}

int64_t WindowOf(const DecoderSpec& spec) {
  for (const DecoderBlock& block : spec.blocks) {
    if (const AttentionSpec* const a = AttentionOf(block); a != nullptr && a->window > 0) return a->window;
  }
  return 0;
}

std::vector<std::string> MissingInGguf(const DecoderSpec& spec) {
  return Finder(spec).Run();
}

}  // namespace temper
