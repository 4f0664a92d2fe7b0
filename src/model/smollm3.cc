// SmolLM3 (Bakouch et al. 2025; transformers, SmolLM3ForCausalLM):
// Llama's blocks; every fourth one has no rotary embedding (NoPE).
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

// no_rope_layers: 1 means that the layer has a rotary embedding, despite the key's name.
Status SetRopes(const Json& config, const std::string& where, DecoderSpec* spec) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t interval, IntOr(config, "no_rope_layer_interval", 4, where));
  const auto list = config.find("no_rope_layers");
  const bool listed = list != config.end() && !list->is_null();
  if (listed && (!list->is_array() || list->size() < spec->blocks.size())) {
    return Corrupt(fmt::format("{}: no_rope_layers should be a list with an entry for each of the {} layers", where,
                               spec->blocks.size()));
  }
  if (!listed && interval < 1) {
    return Corrupt(fmt::format("{}: no_rope_layer_interval is {}, should be at least 1", where, interval));
  }
  const std::vector<AttentionSpec*> attentions = spec->attentions();
  for (size_t b = 0; b < attentions.size(); ++b) {
    bool turns = !listed && (static_cast<int64_t>(b) + 1) % interval != 0;
    if (listed) {
      turns = (*list)[b] == 1;
      if (!turns && (*list)[b] != 0) {
        return Corrupt(fmt::format("{}: entry {} of no_rope_layers should be 0 or 1", where, b));
      }
    }
    attentions[b]->rope = turns ? 0 : kNoRope;
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Model>> ReadSmolLm3(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "SmolLM3ForCausalLM",
                                                     {.vocab = 128256,
                                                      .hidden = 2048,
                                                      .ffn = 11008,
                                                      .blocks = 36,
                                                      .heads = 16,
                                                      .max_positions = 32768,
                                                      .kv_heads = 4,
                                                      .tied = true,
                                                      .rope = {.theta = 2000000}},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  TEMPER_RETURN_IF_ERROR(SetRopes(config, where, &s));
  TEMPER_ASSIGN_OR_RETURN(const bool windows, BoolOr(config, "use_sliding_window", false, where));
  int64_t window = 0;
  if (windows) {
    TEMPER_ASSIGN_OR_RETURN(window, ReadWindow(config, 0, where));
  }
  const auto slides = [&](int64_t block) { return s.attentions()[static_cast<size_t>(block)]->rope == kNoRope; };
  TEMPER_RETURN_IF_ERROR(SetWindows(config, window, slides, where, &s));
  s.gguf = {.name = "smollm3", .interleaved = true, .rope = GgufArchitecture::Rope::kThreeOfFour, .any_head_dim = true};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
