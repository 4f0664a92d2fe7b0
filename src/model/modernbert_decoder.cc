// ModernBERT's decoder, Ettin 17M to 1B (Weller et al. 2025; transformers, ModernBertDecoderForCausalLM): layer norms,
// also of embeddings, none before the first attention; a GeGLU MLP; windows and a rotary embedding of their own in two
// of three layers; a dense layer and a norm before the head, which has a bias.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

// One embedding for each type of layer, as newer files have them. Older ones have a theta for each, and the scaling
// that both share.
Result<Json> WithRopeByType(Json config, const std::string& where) {
  Json by_type = Json::object();
  const auto given = config.find("rope_parameters");
  const auto scaling = config.find("rope_scaling");
  if (given != config.end() && !given->is_null() &&
      !(given->is_object() && (given->contains("full_attention") || given->contains("sliding_attention")))) {
    return Corrupt(where + ": rope_parameters should have an object for each type of layer, as full_attention");
  }
  for (const auto& [type, key, theta] : {std::tuple{"full_attention", "global_rope_theta", 160000.0},
                                         {"sliding_attention", "local_rope_theta", 10000.0}}) {
    Json of_type = {{"rope_type", "default"}};
    if (given != config.end() && given->is_object() && given->contains(type) && (*given)[type].is_object()) {
      of_type = (*given)[type];
    }
    if (scaling != config.end() && scaling->is_object()) of_type.update(*scaling);
    TEMPER_ASSIGN_OR_RETURN(const double own, NumberOr(config, key, theta, where));
    if (!of_type.contains("rope_theta")) of_type["rope_theta"] = own;
    by_type[type] = std::move(of_type);
  }
  config.erase("rope_scaling");
  config["rope_parameters"] = std::move(by_type);
  return config;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadModernBertDecoder(const Json& file, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(Json config, WithRopeByType(file, where));
  config.erase("rope_theta");
  DecoderDefaults defaults{.keys = {.norm_eps = "norm_eps", .activation = "hidden_activation"},
                           .vocab = 50368,
                           .hidden = 768,
                           .ffn = 1152,
                           .blocks = 22,
                           .heads = 12,
                           .max_positions = 8192,
                           .norm_eps = 1e-5,
                           .activation = "gelu",
                           .tied = true,
                           .plain_heads = true,
                           .rope = {.layer_type = "full_attention"}};
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "ModernBertDecoderForCausalLM", defaults, where));
  TEMPER_RETURN_IF_ERROR(ExpectPlainHeadDim(config, s, where));
  TEMPER_ASSIGN_OR_RETURN(const bool shifted, BoolOr(config, "norm_bias", false, where));
  s.SetNorm(shifted ? NormKind::kLayer : NormKind::kLayerNoShift);
  s.names.embedding = "embeddings.tok_embeddings";
  s.names.embedding_norm = "embeddings.norm";
  s.names.final_norm = "final_norm";
  s.names.head = "decoder";
  s.NameNorms({.mixer = "attn_norm", .feed_forward = "mlp_norm"});
  s.blocks.front().norms.mixer = "";
  s.init_by_depth = DecoderSpec::InitByDepth::kBoth;

  // The window counts tokens on both sides, of which a decoder sees one.
  int64_t window = 0;
  if (!IsNull(config, "local_attention")) {
    TEMPER_ASSIGN_OR_RETURN(const int64_t both, IntOr(config, "local_attention", 128, where));
    window = both / 2;
    if (window <= 0) return Corrupt(fmt::format("{}: local_attention is {}, should be at least 2", where, both));
  }
  // What the class makes of that, which files of transformers have, too: there it counts if they differ.
  if (config.contains("sliding_window")) {
    TEMPER_ASSIGN_OR_RETURN(window, ReadWindow(config, window, where));
  }
  TEMPER_ASSIGN_OR_RETURN(const int64_t every, IntOr(config, "global_attn_every_n_layers", 3, where));
  if (every <= 0) return Corrupt(fmt::format("{}: global_attn_every_n_layers is {}", where, every));
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [&](int64_t block) { return block % every != 0; }, where, &s));
  TEMPER_ASSIGN_OR_RETURN(s.ropes.emplace_back(), ReadRope(config, "sliding_attention", defaults.rope,
                                                           s.attentions()[0]->head_dim, s.facts.max_positions, where));
  TEMPER_ASSIGN_OR_RETURN(const bool attention_bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->path = "attn.";
    a->out = "Wo";
    a->qkv_bias = a->out_bias = attention_bias;
    a->rope = a->window > 0 ? 1 : 0;
  }
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const double mlp_dropout, ReadDropout(config, "mlp_dropout", 0, where, &s.facts));
  for (MlpSpec* const m : s.mlps()) {
    m->fused_gate_up = true;
    m->gate_up = "mlp.Wi";
    m->down = "mlp.Wo";
    m->bias = mlp_bias;
    m->dropout = mlp_dropout;
  }
  TEMPER_ASSIGN_OR_RETURN(const double out, ReadDropout(config, "attention_dropout", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = out;
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "embedding_dropout", 0, where, &s.facts));

  TEMPER_ASSIGN_OR_RETURN(s.head_bias, BoolOr(config, "decoder_bias", true, where));
  s.head_layer = {.module = "lm_head"};
  TEMPER_ASSIGN_OR_RETURN(s.head_layer.bias, BoolOr(config, "classifier_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string name, StringOr(config, "classifier_activation", "gelu", where));
  const auto activation = ActivationNamed(name, /*gated=*/false);
  if (!activation) {
    return Unsupported(fmt::format("{}: classifier_activation '{}'; supported are gelu, gelu_new, relu and relu2",
                                   where, name.substr(0, 40)));
  }
  s.head_layer.activation = *activation;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
