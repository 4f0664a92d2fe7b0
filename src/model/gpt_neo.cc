// GPT-Neo, 125M to 2.7B (Black et al. 2021; transformers, GPTNeoForCausalLM): GPT-2's blocks with separate q, k and v
// without biases, scores that are not scaled, and a window in every other layer.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

// The type of each layer: attention_layers lists them; attention_types, from which the class makes that list, has
// patterns and how often each repeats: [[["global", "local"], 12]].
Result<std::vector<std::string>> LayerTypes(const Json& config, const std::string& where) {
  constexpr size_t kMost = static_cast<size_t>(kMaxBlocks);
  std::vector<std::string> types;
  const auto add = [&](const Json& names) {
    bool good = names.is_array() && types.size() + names.size() <= kMost;
    for (const Json& name : names) {
      good = good && name.is_string();
      if (good) types.push_back(name.get<std::string>());
    }
    return good;
  };
  if (const auto list = config.find("attention_layers"); list != config.end() && !list->is_null()) {
    if (!add(*list)) return Corrupt(where + ": attention_layers should be a list with a type for each layer");
    return types;
  }
  Json patterns = Json::array({Json::array({Json::array({"global", "local"}), 12u})});
  if (const auto given = config.find("attention_types"); given != config.end() && !given->is_null()) patterns = *given;
  bool good = patterns.is_array();
  for (const Json& pattern : patterns) {
    good = good && pattern.is_array() && pattern.size() == 2 && pattern[1].is_number_unsigned();
    const auto times = good ? pattern[1].get<uint64_t>() : 0;
    good = good && times <= kMost;
    for (uint64_t i = 0; good && i < times; ++i) good = add(pattern[0]);
  }
  if (!good) {
    return Corrupt(where + ": attention_types should be a list of patterns, as [[[\"global\", \"local\"], 12]]");
  }
  return types;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGptNeo(const Json& file, const std::string& where) {
  const Json config = WithOwnKeys(file, {{"num_hidden_layers", "num_layers"}, {"num_attention_heads", "num_heads"}});
  const DecoderDefaults defaults{.keys = {.blocks = "num_layers",
                                          .heads = "num_heads",
                                          .norm_eps = "layer_norm_epsilon",
                                          .activation = "activation_function"},
                                 .vocab = 50257,
                                 .hidden = 2048,
                                 .blocks = 24,
                                 .heads = 16,
                                 .max_positions = 2048,
                                 .norm_eps = 1e-5,
                                 .activation = "gelu_new",
                                 .gated = false,
                                 .tied = true,
                                 .plain_heads = true,
                                 .rotary = false};
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "GPTNeoForCausalLM", defaults, where));
  s.SetNorm(NormKind::kLayer);
  s.names = {.prefix = "transformer.", .embedding = "wte", .positions = "wpe", .blocks = "h.", .final_norm = "ln_f"};
  s.NameNorms({.mixer = "ln_1", .feed_forward = "ln_2"});
  for (AttentionSpec* const a : s.attentions()) {
    a->path = "attn.attention.";
    a->out = "out_proj";
    a->out_bias = true;
    a->scale = 1;
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "mlp.c_fc";
    m->down = "mlp.c_proj";
    m->bias = true;
  }
  s.facts.ignored = {".attn.attention.bias", ".attn.attention.masked_bias"};
  s.facts.positions_are_learned = true;
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "resid_dropout", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "embed_dropout", 0, where, &s.facts));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, IntOr(config, "window_size", 256, where));
  if (window <= 0) return Corrupt(fmt::format("{}: window_size is {}, should be positive", where, window));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> types, LayerTypes(config, where));
  if (types.size() != s.blocks.size()) {
    return Corrupt(fmt::format(
        "{}: attention_types (or attention_layers) are for {} layers, but num_layers (num_hidden_layers) is {}", where,
        types.size(), s.blocks.size()));
  }
  for (size_t b = 0; b < types.size(); ++b) {
    if (types[b] != "global" && types[b] != "local") {
      return Unsupported(fmt::format("{}: attention of layer {} is '{}'; supported are global and local", where, b,
                                     types[b].substr(0, 40)));
    }
    s.attentions()[b]->window = types[b] == "local" ? window : 0;
  }
  return MakeDecoder(std::move(s));
}

}  // namespace temper
