#include "model/mixture.h"

#include <fmt/core.h>

#include <algorithm>

#include <nlohmann/json.hpp>

namespace temper {

Result<ExpertsSpec> ReadExperts(const Json& config, const char* ffn, const ExpertsSpec& defaults,
                                const std::string& where, DecoderSpec* spec, double balance) {
  constexpr char kExperts[] = "num_local_experts", kExpertsToo[] = "num_experts", kActive[] = "num_experts_per_tok";
  ExpertsSpec s = defaults;
  TEMPER_ASSIGN_OR_RETURN(const int64_t other, IntOr(config, kExpertsToo, defaults.experts, where));
  TEMPER_ASSIGN_OR_RETURN(s.experts, IntOr(config, kExperts, other, where));
  TEMPER_ASSIGN_OR_RETURN(s.active, IntOr(config, kActive, defaults.active, where));
  TEMPER_ASSIGN_OR_RETURN(s.ffn, IntOr(config, ffn, defaults.ffn, where));
  const char* const key = config.contains(kExperts) ? kExperts : kExpertsToo;
  if (config.contains(kExpertsToo) && s.experts != other) {
    return Corrupt(fmt::format("{}: {} is {}, but {} is {}", where, kExperts, s.experts, kExpertsToo, other));
  }
  if (!IsSane(s.experts, kMaxExperts)) {
    return Corrupt(fmt::format("{}: {} is {}, should be from 1 to {}", where, key, s.experts, kMaxExperts));
  }
  if (!IsSane(s.ffn, kMaxWidth)) {
    return Corrupt(fmt::format("{}: {} is {}, should be from 1 to {}", where, ffn, s.ffn, kMaxWidth));
  }
  if (s.active <= 0 || s.active > s.experts) {
    return Corrupt(fmt::format("{}: {} is {}, should be from 1 to the {} experts that there are", where, kActive,
                               s.active, s.experts));
  }
  TEMPER_ASSIGN_OR_RETURN(const bool balances, BoolOr(config, "output_router_logits", false, where));
  TEMPER_ASSIGN_OR_RETURN(const double coef, NumberOr(config, "router_aux_loss_coef", balance, where));
  if (!(coef >= 0)) {
    return Corrupt(fmt::format("{}: router_aux_loss_coef is {}, should not be negative", where, coef));
  }
  spec->facts.experts = s.experts;
  if (balances) spec->facts.router_aux_loss_coef = coef;
  s.activation = spec->mlps().front()->activation;
  return s;
}

Status SetQwenExperts(const Json& config, const ExpertsSpec& defaults, const std::string& where, DecoderSpec* spec) {
  TEMPER_ASSIGN_OR_RETURN(ExpertsSpec experts, ReadExperts(config, "moe_intermediate_size", defaults, where, spec));
  TEMPER_ASSIGN_OR_RETURN(experts.normalise, BoolOr(config, "norm_topk_prob", defaults.normalise, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t step, IntOr(config, "decoder_sparse_step", 1, where));
  if (step <= 0) return Corrupt(fmt::format("{}: decoder_sparse_step is {}, should be positive", where, step));
  const auto dense = config.find("mlp_only_layers");
  const bool listed = dense != config.end() && !dense->is_null();
  if (listed && !dense->is_array()) {
    return Corrupt(where + ": mlp_only_layers should be a list of the layers that have an MLP instead of experts");
  }
  for (size_t b = 0; b < spec->blocks.size(); ++b) {
    const bool mlp = listed && std::find(dense->begin(), dense->end(), Json(b)) != dense->end();
    if (!mlp && (static_cast<int64_t>(b) + 1) % step == 0) spec->blocks[b].feed_forward = experts;
  }
  return OkStatus();
}

Result<MlpSpec> ReadSharedExpert(const Json& config, int64_t ffn, const DecoderSpec& spec, const std::string& where) {
  MlpSpec shared = std::get<MlpSpec>(spec.blocks.front().feed_forward);
  TEMPER_ASSIGN_OR_RETURN(shared.ffn, IntOr(config, "shared_expert_intermediate_size", ffn, where));
  if (!IsSane(shared.ffn, kMaxWidth)) {
    return Corrupt(
        fmt::format("{}: shared_expert_intermediate_size is {}, should be from 1 to {}", where, shared.ffn, kMaxWidth));
  }
  shared.gate = "mlp.shared_expert.gate_proj";
  shared.up = "mlp.shared_expert.up_proj";
  shared.down = "mlp.shared_expert.down_proj";
  return shared;
}

}  // namespace temper
