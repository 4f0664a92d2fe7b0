// Cohere, Command R (Cohere 2024; transformers, CohereForCausalLM): attention and MLP run in parallel behind one layer
// norm without shift, logits are scaled; a rotary embedding of interleaved pairs; Command R+ has layer norms of each
// head's q and k. Cohere 2, Command R7B and A (2024;
// Cohere2ForCausalLM): three of four layers have a window, and only these a rotary embedding. Cohere Compass, the text
// model of North Micro Vision (2026; CohereCompassForCausalLM): a rotary embedding for each type of layer, or none, of
// halves.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

constexpr DecoderDefaults kCohereDefaults = {.keys = {.norm_eps = "layer_norm_eps"},
                                             .vocab = 256000,
                                             .hidden = 8192,
                                             .ffn = 22528,
                                             .blocks = 40,
                                             .heads = 64,
                                             .max_positions = 8192,
                                             .norm_eps = 1e-5,
                                             .tied = true};

Result<DecoderSpec> ReadCoheres(const Json& config, const char* architecture, const DecoderDefaults& defaults,
                                double logit_scale, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture, defaults, where));
  s.SetNorm(NormKind::kLayerNoShift);
  for (DecoderBlock& block : s.blocks) {
    block.parallel = true;
    block.norms.feed_forward = "";
  }
  TEMPER_ASSIGN_OR_RETURN(s.logit_scale, NumberOr(config, "logit_scale", logit_scale, where));
  if (!(s.logit_scale > 0)) {
    return Corrupt(fmt::format("{}: logit_scale is {}, should be positive", where, s.logit_scale));
  }
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  return s;
}

GgufArchitecture CohereGguf(const char* name, const DecoderSpec& s) {
  return {.name = name,
          .interleaved = true,
          .own_head = false,
          .scales_logits = true,
          .parallel = true,
          .keys = {{"logit_scale", static_cast<float>(s.logit_scale)}}};
}

// The embedding of layers of that type, appended to `ropes`; its index, or kNoRope where the file says null. The class
// reads nothing else of rotary embeddings.
Result<int> AddRopeOf(const Json& config, const char* type, const std::string& where, DecoderSpec* spec) {
  const auto all = config.find("rope_parameters");
  const Json* const of_type = all != config.end() && all->is_object() && all->contains(type) ? &(*all)[type] : nullptr;
  if (of_type != nullptr && of_type->is_null()) return kNoRope;
  if (of_type == nullptr || !of_type->is_object() || !of_type->contains("rope_theta")) {
    return Corrupt(fmt::format(
        "{}: rope_parameters should have an object with rope_theta for {}, or null there, which means no embedding",
        where, type));
  }
  const Json alone = {{"rope_parameters", *of_type}};
  TEMPER_ASSIGN_OR_RETURN(
      RopeSpec rope, ReadRope(alone, nullptr, {}, spec->attentions()[0]->head_dim, spec->facts.max_positions, where));
  spec->ropes.push_back(std::move(rope));
  return static_cast<int>(spec->ropes.size()) - 1;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadCohere(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kCohereDefaults;
  defaults.rope.theta = 500000;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadCoheres(config, "CohereForCausalLM", defaults, 0.0625, where));
  s.ropes[0].interleaved = true;
  TEMPER_ASSIGN_OR_RETURN(const bool qk_norm, BoolOr(config, "use_qk_norm", false, where));
  if (qk_norm) {
    for (AttentionSpec* const a : s.attentions()) a->qk_norm = AttentionSpec::QkNorm::kEachHead;
  }
  s.gguf = CohereGguf("command-r", s);
  if (s.blocks.size() >= 64 && !qk_norm) s.gguf.missing = "64 layers without norms of q and k";
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadCohere2(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadCoheres(config, "Cohere2ForCausalLM", kCohereDefaults, 0.0625, where));
  s.ropes[0].interleaved = true;
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 4096, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t pattern, IntOr(config, "sliding_window_pattern", 4, where));
  if (pattern < 1) {
    return Corrupt(fmt::format("{}: sliding_window_pattern is {}, should be at least 1", where, pattern));
  }
  if (window == 0) return Unsupported(where + ": sliding_window is null or 0, which Cohere2ForCausalLM cannot compute");
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [&](int64_t block) { return (block + 1) % pattern != 0; }, where, &s));
  for (AttentionSpec* const a : s.attentions()) a->rope = a->window > 0 ? 0 : kNoRope;
  s.gguf = CohereGguf("cohere2", s);
  s.gguf.windows = true;
  s.gguf.rope = GgufArchitecture::Rope::kWindowed;
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadCohereCompass(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kCohereDefaults;
  defaults.rotary = false;  // read below
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadCoheres(config, "CohereCompassForCausalLM", defaults, 1, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 4096, where));
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [](int64_t) { return false; }, where, &s));
  std::optional<int> full, sliding;
  for (AttentionSpec* const a : s.attentions()) {
    std::optional<int>& rope = a->window > 0 ? sliding : full;
    if (!rope) {
      TEMPER_ASSIGN_OR_RETURN(rope,
                              AddRopeOf(config, a->window > 0 ? "sliding_attention" : "full_attention", where, &s));
    }
    a->rope = *rope;
  }
  return MakeDecoder(std::move(s));
}

}  // namespace temper
