// Granite 3 (IBM 2024; transformers, GraniteForCausalLM): Llama's blocks, with constants that multiply embeddings,
// scores, and what attention and MLP add, and one that divides the logits. HyperCLOVA X (NAVER 2025;
// HyperCLOVAXForCausalLM): the last multiplies the logits, and there may be norms on the outputs of attention and MLP.
// Granite 3's mixtures (GraniteMoeForCausalLM, GraniteMoeSharedForCausalLM): the same with experts, and perhaps an MLP
// of all tokens beside them. Granite 4 (IBM 2025; GraniteMoeHybridForCausalLM): those, with or without experts; most
// blocks mix tokens by Mamba-2, the others by attention, with a rotary embedding or without. Granite SWA (IBM 2026;
// GraniteSWAForCausalLM): Granite 3 with windows in most layers, a sink per head, and a theta or none for each layer.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"
#include "model/mixture.h"

namespace temper {
namespace {

constexpr DecoderDefaults kGraniteDefaults = {
    .vocab = 32000, .hidden = 4096, .ffn = 11008, .blocks = 32, .heads = 32, .max_positions = 2048};

// `logits_scaling` is the key's value. The scale of scores is 0 where the file has none.
Result<DecoderSpec> ReadGranites(const Json& config, const char* architecture, const DecoderDefaults& defaults,
                                 double score_scale, double* logits_scaling, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture, defaults, where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  *logits_scaling = 1;
  double residual_scale = 1;
  const std::pair<const char*, double*> multipliers[] = {{"embedding_multiplier", &s.embedding_scale},
                                                         {"residual_multiplier", &residual_scale},
                                                         {"attention_multiplier", &score_scale},
                                                         {"logits_scaling", logits_scaling}};
  for (const auto& [key, value] : multipliers) {
    TEMPER_ASSIGN_OR_RETURN(const double given, NumberOr(config, key, *value, where));
    const bool none = *value == 0 && given == 0 && !config.contains(key);
    *value = given;
    if ((!(*value > 0) && !none) || !std::isfinite(*value)) {
      return Corrupt(fmt::format("{}: {} is {}, should be positive", where, key, *value));
    }
  }
  for (DecoderBlock& block : s.blocks) block.residual_scale = residual_scale;
  for (AttentionSpec* const a : s.attentions()) a->scale = score_scale;
  return s;
}

// Files stack the matrices of all experts, under other names than the class's. The weights of a token's experts are the
// softmax of their logits alone, which is that of all, normalised.
Status SetGraniteExperts(const Json& config, std::optional<MlpSpec> shared, const std::string& where, DecoderSpec* s) {
  TEMPER_ASSIGN_OR_RETURN(const ExpertsSpec experts,
                          ReadExperts(config, "intermediate_size",
                                      {.experts = 8,
                                       .active = 2,
                                       .ffn = 11008,
                                       .normalise = true,
                                       .shared = std::move(shared),
                                       .shared_gate = "",
                                       .router = "block_sparse_moe.router",
                                       .module = "block_sparse_moe.experts",
                                       .were_modules = false,
                                       .files = ForwardBuilder::StackFiles::kOutIn,
                                       .router_tensor = "block_sparse_moe.router.layer.weight",
                                       .gate_up_tensor = "block_sparse_moe.input_linear.weight",
                                       .down_tensor = "block_sparse_moe.output_linear.weight"},
                                      where, s));
  for (DecoderBlock& block : s->blocks) block.feed_forward = experts;
  return OkStatus();
}

MlpSpec SharedMlp(MlpSpec mlp) {
  mlp.bias = false;  // the classes have none
  mlp.fused_gate_up = true;
  mlp.gate_up = "shared_mlp.input_linear";
  mlp.down = "shared_mlp.output_linear";
  return mlp;
}

// Without mlp_bias, which the classes of mixtures do not read.
Json WithoutMlpBias(Json config) {
  config.erase("mlp_bias");
  return config;
}

// `hidden`: of the model.
Result<Mamba2Spec> ReadGraniteMamba(const Json& config, int64_t hidden, double norm_eps, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t expand, IntOr(config, "mamba_expand", 2, where));
  const std::string name = fmt::format("mamba_expand {} times hidden_size {}", expand, hidden);
  const int64_t width = IsSane(expand, kMaxHeads) ? expand * hidden : 0;
  TEMPER_ASSIGN_OR_RETURN(Mamba2Spec m, ReadMamba2(config, width, name, norm_eps, where));
  TEMPER_ASSIGN_OR_RETURN(m.in_bias, BoolOr(config, "mamba_proj_bias", false, where));
  m.out_bias = m.in_bias;
  return m;
}

// `divisor`: of logits. REQUIRES: a layer of attention.
GgufArchitecture GraniteGguf(const char* name, DecoderSpec& s, double divisor) {
  const AttentionSpec& attention = *s.attentions()[0];
  return {.name = name,
          .interleaved = true,
          .out_bias = true,
          .factors = true,
          .scales_embedding = true,
          .scales_residual = true,
          .scales_logits = true,
          .score_scale = attention.scale,
          .any_head_dim = true,
          .normalises_experts = true,
          .keys = {{"attention.scale", static_cast<float>(attention.scale)},
                   {"embedding_scale", static_cast<float>(s.embedding_scale)},
                   {"residual_scale", static_cast<float>(s.blocks[0].residual_scale)},
                   {"logit_scale", static_cast<float>(divisor)}}};
}

// Granite 3's blocks with experts, and with an MLP of all tokens beside them where `shared_ffn` is not 0.
Result<std::unique_ptr<Model>> ReadGraniteMixture(const Json& file, const char* architecture, int64_t shared_ffn,
                                                  const std::string& where) {
  const Json config = WithoutMlpBias(file);
  double divisor = 1;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGranites(config, architecture, kGraniteDefaults, 1, &divisor, where));
  s.logit_scale = 1 / divisor;
  std::optional<MlpSpec> shared;
  if (shared_ffn > 0) {
    shared = SharedMlp(*s.mlps()[0]);
    shared->ffn = shared_ffn;
  }
  TEMPER_RETURN_IF_ERROR(SetGraniteExperts(config, std::move(shared), where, &s));
  s.gguf = GraniteGguf("granitemoe", s, divisor);
  return MakeDecoder(std::move(s));
}

// Types of layers as newer files have them: those of Granite 4 say "mamba" and "attention".
void RenameLayerTypes(Json* config) {
  const auto given = config->find("layer_types");
  if ((given == config->end() || given->is_null()) && config->contains("layers_block_type")) {
    (*config)["layer_types"] = (*config)["layers_block_type"];
  }
  const auto types = config->find("layer_types");
  if (types == config->end() || !types->is_array()) return;
  for (Json& type : *types) {
    if (type == "mamba") type = "linear_attention";
    if (type == "attention") type = "full_attention";
  }
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGranite(const Json& config, const std::string& where) {
  double divisor = 1;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s,
                          ReadGranites(config, "GraniteForCausalLM", kGraniteDefaults, 1, &divisor, where));
  s.logit_scale = 1 / divisor;
  s.gguf = GraniteGguf("granite", s, divisor);
  s.gguf.mlp_bias = true;
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadGraniteMoe(const Json& file, const std::string& where) {
  return ReadGraniteMixture(file, "GraniteMoeForCausalLM", /*shared_ffn=*/0, where);
}

Result<std::unique_ptr<Model>> ReadGraniteMoeShared(const Json& file, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t ffn, IntOr(file, "shared_intermediate_size", 0, where));
  if (ffn < 0 || ffn > kMaxWidth) {
    return Corrupt(fmt::format("{}: shared_intermediate_size is {}, should be from 0 to {}", where, ffn, kMaxWidth));
  }
  return ReadGraniteMixture(file, "GraniteMoeSharedForCausalLM", ffn, where);
}

Result<std::unique_ptr<Model>> ReadGraniteHybrid(const Json& file, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t experts, IntOr(file, "num_local_experts", 8, where));
  Json config = WithoutMlpBias(file);
  RenameLayerTypes(&config);
  DecoderDefaults defaults = kGraniteDefaults;
  defaults.keys.ffn = "shared_intermediate_size";
  defaults.ffn = 1024;
  const auto position = config.find("position_embedding_type");
  defaults.rotary = position != config.end() && *position == "rope";
  if (!defaults.rotary && position != config.end() && !position->is_null() && *position != "nope") {
    return Unsupported(fmt::format("{}: position_embedding_type is {}; supported are \"rope\", \"nope\" and null",
                                   where, DumpJson(*position).substr(0, 40)));
  }
  double divisor = 1;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s,
                          ReadGranites(config, "GraniteMoeHybridForCausalLM", defaults, 1, &divisor, where));
  s.logit_scale = 1 / divisor;
  if (s.mlps()[0]->activation != Activation::kSilu) {
    return Unsupported(fmt::format("{}: hidden_act is {}; supported is silu, which the convolutions have, too", where,
                                   DumpJson(config["hidden_act"]).substr(0, 40)));
  }
  for (MlpSpec* const m : s.mlps()) *m = SharedMlp(*m);
  if (experts != 0) TEMPER_RETURN_IF_ERROR(SetGraniteExperts(config, *s.mlps()[0], where, &s));
  TEMPER_ASSIGN_OR_RETURN(const Mamba2Spec mamba, ReadGraniteMamba(config, s.hidden, s.norm.eps, where));
  TEMPER_ASSIGN_OR_RETURN(std::vector<bool> attention,
                          ReadAttentionLayers(config, "linear_attention", s.blocks.size(), where));
  attention.resize(s.blocks.size(), false);
  for (size_t b = 0; b < attention.size(); ++b) {
    if (!attention[b]) s.blocks[b].mixer = mamba;
  }
  const auto layers = std::count(attention.begin(), attention.end(), true);
  if (layers > 0) {
    const bool all = layers == std::ssize(attention);
    s.gguf = GraniteGguf(!all ? "granitehybrid" : experts != 0 ? "granitemoe" : "granite", s, divisor);
    if (!all) s.gguf.mixer = GgufArchitecture::Mixer::kMamba2;
    s.gguf.keys.emplace_back("rope.scaling.finetuned", defaults.rotary);
  }
  return MakeDecoder(std::move(s));
}

namespace {

// The rotary embedding of each layer: `layer_rope_theta` lists a theta for each, and 0 for none.
Status SetRopeByLayer(const Json& config, const RopeDefaults& defaults, const std::string& where, DecoderSpec* s) {
  const auto thetas = config.find("layer_rope_theta");
  if (thetas == config.end() || thetas->is_null()) return OkStatus();
  const std::vector<AttentionSpec*> attentions = s->attentions();
  if (!thetas->is_array() || thetas->size() != attentions.size()) {
    return Corrupt(fmt::format("{}: layer_rope_theta should be a list with a number for each of the {} layers", where,
                               attentions.size()));
  }
  s->ropes.clear();
  std::map<double, int> rope_of;
  for (size_t b = 0; b < attentions.size(); ++b) {
    const Json& theta = (*thetas)[b];
    if (!theta.is_number() || !(theta.get<double>() >= 0)) {
      return Corrupt(fmt::format("{}: layer {} of layer_rope_theta is {}, should be a number of 0 or more", where, b,
                                 DumpJson(theta).substr(0, 40)));
    }
    attentions[b]->rope = kNoRope;
    if (theta.get<double>() == 0) continue;
    const auto [it, fresh] = rope_of.try_emplace(theta.get<double>(), static_cast<int>(s->ropes.size()));
    attentions[b]->rope = it->second;
    if (!fresh) continue;
    Json of_layer = config;
    if (of_layer.contains("rope_parameters") && of_layer["rope_parameters"].is_object()) {
      of_layer["rope_parameters"]["rope_theta"] = theta;
    }
    of_layer["rope_theta"] = theta;
    TEMPER_ASSIGN_OR_RETURN(s->ropes.emplace_back(), ReadRope(of_layer, nullptr, defaults, attentions[b]->head_dim,
                                                              s->facts.max_positions, where));
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGraniteSwa(const Json& config, const std::string& where) {
  constexpr DecoderDefaults kDefaults = {.vocab = 100352,
                                         .hidden = 2560,
                                         .ffn = 8192,
                                         .blocks = 24,
                                         .heads = 20,
                                         .max_positions = 8192,
                                         .kv_heads = 4,
                                         .norm_eps = 1e-5,
                                         .tied = true};
  double divisor = 1;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGranites(config, "GraniteSWAForCausalLM", kDefaults, 1, &divisor, where));
  s.logit_scale = 1 / divisor;
  for (AttentionSpec* const a : s.attentions()) {
    a->sink = "sinks";
    a->sinks_begin_at_zero = true;
  }
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 128, where));
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [](int64_t block) { return block % 4 != 0; }, where, &s));
  TEMPER_RETURN_IF_ERROR(SetRopeByLayer(config, kDefaults.rope, where, &s));
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadHyperClovaX(const Json& config, const std::string& where) {
  double factor = 1;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s,
                          ReadGranites(config, "HyperCLOVAXForCausalLM", kGraniteDefaults, 0, &factor, where));
  s.logit_scale = factor;
  for (AttentionSpec* const a : s.attentions()) {
    if (a->scale == 0) a->scale = std::pow(static_cast<double>(a->head_dim), -0.5);
  }
  TEMPER_ASSIGN_OR_RETURN(const bool post_norm, BoolOr(config, "use_post_norm", true, where));
  if (post_norm) s.NameNorms({.mixer_out = "post_norm1", .feed_forward_out = "post_norm2"});
  return MakeDecoder(std::move(s));
}

}  // namespace temper
