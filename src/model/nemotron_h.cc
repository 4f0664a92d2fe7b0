// Nemotron-H, dense (NVIDIA 2025; transformers, NemotronHForCausalLM): blocks of one part each: Mamba-2 of several
// groups of heads, attention without a rotary embedding, or an MLP without gate, whose activation is the square of
// ReLU.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "graph/ops/short_conv.h"
#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

enum class LayerPart : uint8_t { kMamba, kAttention, kMlp };

Status RefuseExperts(size_t layer, const std::string& where) {
  return Unsupported(
      fmt::format("{}: layer {} has experts (\"moe\", in hybrid_override_pattern E); of this class only models without "
                  "are supported",
                  where, layer));
}

// `hybrid_override_pattern`: a letter for each layer.
Result<std::vector<LayerPart>> ReadPattern(const std::string& pattern, const std::string& where) {
  std::vector<LayerPart> parts;
  for (const char letter : pattern) {
    switch (letter) {
      case 'M':
        parts.push_back(LayerPart::kMamba);
        break;
      case '*':
        parts.push_back(LayerPart::kAttention);
        break;
      case '-':
        parts.push_back(LayerPart::kMlp);
        break;
      case 'E':
        return RefuseExperts(parts.size(), where);
      default:
        return Unsupported(fmt::format("{}: letter {} of hybrid_override_pattern is {}; supported are M, * and -",
                                       where, parts.size(), DumpJson(Json(std::string(1, letter)))));
    }
  }
  return parts;
}

// A list of names, which newer files have (`layers_block_type`, or `layer_types`), or a pattern.
Result<std::vector<LayerPart>> ReadParts(const Json& config, const std::string& where) {
  auto types = config.find("layers_block_type");
  if (types == config.end() || types->is_null()) types = config.find("layer_types");
  if (types == config.end() || types->is_null()) {
    if (config.contains("hybrid_override_pattern")) {
      TEMPER_ASSIGN_OR_RETURN(const std::string pattern, StringOr(config, "hybrid_override_pattern", "", where));
      return ReadPattern(pattern, where);
    }
    return RefuseExperts(1, where);  // as the class has it where the file says nothing
  }
  if (!types->is_array()) return Corrupt(where + ": layers_block_type should be a list");
  std::vector<LayerPart> parts;
  for (const Json& type : *types) {
    if (type == "moe") return RefuseExperts(parts.size(), where);
    if (type == "linear_attention" || type == "mamba") {
      parts.push_back(LayerPart::kMamba);
    } else if (type == "full_attention" || type == "attention") {
      parts.push_back(LayerPart::kAttention);
    } else if (type == "mlp") {
      parts.push_back(LayerPart::kMlp);
    } else {
      return Unsupported(
          fmt::format("{}: layer {} of layers_block_type is {}; supported are linear_attention, full_attention and mlp",
                      where, parts.size(), DumpJson(type).substr(0, 40)));
    }
  }
  return parts;
}

Result<Mamba2Spec> ReadMamba(const Json& config, double norm_eps, const std::string& where) {
  Mamba2Spec m{.norm_eps = norm_eps, .path = "mixer."};
  TEMPER_ASSIGN_OR_RETURN(m.heads, IntOr(config, "mamba_num_heads", 128, where));
  TEMPER_ASSIGN_OR_RETURN(m.value_dim, IntOr(config, "mamba_head_dim", 64, where));
  TEMPER_ASSIGN_OR_RETURN(m.groups, IntOr(config, "n_groups", 8, where));
  TEMPER_ASSIGN_OR_RETURN(m.state_dim, IntOr(config, "ssm_state_size", 128, where));
  TEMPER_ASSIGN_OR_RETURN(m.taps, IntOr(config, "conv_kernel", 4, where));
  TEMPER_ASSIGN_OR_RETURN(m.conv_bias, BoolOr(config, "use_conv_bias", true, where));
  TEMPER_ASSIGN_OR_RETURN(m.in_bias, BoolOr(config, "use_bias", false, where));
  m.out_bias = m.in_bias;
  TEMPER_ASSIGN_OR_RETURN(m.least_step, NumberOr(config, "time_step_min", 0.001, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string activation, StringOr(config, "mamba_hidden_act", "silu", where));
  if (!IsSane(m.heads, kMaxHeads) || !IsSane(m.value_dim, kMaxHeads) || !IsSane(m.groups, kMaxHeads) ||
      !IsSane(m.state_dim, kMaxHeads) || m.heads % m.groups != 0 || !(m.least_step >= 0)) {
    return Corrupt(fmt::format(
        "{}: mamba_num_heads {} should be a positive multiple of n_groups {}, mamba_head_dim {} and ssm_state_size {} "
        "positive, and time_step_min {} not negative",
        where, m.heads, m.groups, m.value_dim, m.state_dim, m.least_step));
  }
  if (m.taps < 1 || m.taps > kMaxConvTaps) {
    return Unsupported(fmt::format("{}: conv_kernel is {}; convolutions of 1 to {} tokens are supported", where, m.taps,
                                   kMaxConvTaps));
  }
  if (activation != "silu" && activation != "swish") {
    return Unsupported(fmt::format("{}: mamba_hidden_act is '{}'; supported is silu", where, activation));
  }
  return m;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadNemotronH(const Json& file, const std::string& where) {
  Json config = file;
  for (const auto& [older, name] : {std::pair{"mamba_n_groups", "n_groups"},
                                    {"mamba_d_conv", "conv_kernel"},
                                    {"mamba_conv_bias", "use_conv_bias"},
                                    {"mamba_dt_min", "time_step_min"}}) {
    if (config.contains(older)) config[name] = config[older];
  }
  TEMPER_ASSIGN_OR_RETURN(const std::vector<LayerPart> parts, ReadParts(config, where));
  config["num_hidden_layers"] = parts.size();  // whatever the file says
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s,
                          ReadDecoder(config, "NemotronHForCausalLM",
                                      {.keys = {.norm_eps = "layer_norm_epsilon", .activation = "mlp_hidden_act"},
                                       .vocab = 131072,
                                       .hidden = 4096,
                                       .ffn = 21504,
                                       .heads = 32,
                                       .max_positions = 4096,
                                       .kv_heads = 8,
                                       .head_dim = 128,
                                       .norm_eps = 1e-5,
                                       .activation = "relu2",
                                       .gated = false,
                                       .rotary = false},
                                      where));
  s.names.embedding = "embeddings";
  s.names.final_norm = "norm_f";
  s.names.in_files = {{"model.", "backbone."}};
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const Mamba2Spec mamba, ReadMamba(config, s.norm.eps, where));
  for (size_t b = 0; b < parts.size(); ++b) {
    DecoderBlock& block = s.blocks[b];
    block.norms.mixer = "norm";
    block.norms.feed_forward = "";
    auto mlp = std::get<MlpSpec>(block.feed_forward);
    mlp.bias = mlp_bias;
    mlp.up = "mixer.up_proj";
    mlp.down = "mixer.down_proj";
    std::get<AttentionSpec>(block.mixer).path = "mixer.";
    if (parts[b] == LayerPart::kMlp) block.mixer = mlp;
    if (parts[b] == LayerPart::kMamba) block.mixer = mamba;
    block.feed_forward = std::monostate();
  }
  s.gguf = {.name = "nemotron_h",
            .activation = Activation::kReluSquared,
            .out_bias = true,
            .mlp_bias = true,
            .any_head_dim = true,
            .mixer = GgufArchitecture::Mixer::kMamba2,
            .one_part = true,
            .keys = {{"attention.layer_norm_epsilon", static_cast<float>(s.norm.eps)}}};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
