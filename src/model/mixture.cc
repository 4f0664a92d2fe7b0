#include "model/mixture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

namespace temper {

Result<ExpertsSpec> ReadExperts(const Json& config, const char* ffn, const ExpertsSpec& defaults,
                                const std::string& where, DecoderSpec* spec, double balance, const char* experts) {
  constexpr char kExperts[] = "num_local_experts", kExpertsToo[] = "num_experts", kActive[] = "num_experts_per_tok";
  ExpertsSpec s = defaults;
  const char* const one_name = experts != nullptr ? experts : kExpertsToo;
  TEMPER_ASSIGN_OR_RETURN(const int64_t other, IntOr(config, one_name, defaults.experts, where));
  TEMPER_ASSIGN_OR_RETURN(s.experts, IntOr(config, kExperts, other, where));
  TEMPER_ASSIGN_OR_RETURN(s.active, IntOr(config, kActive, defaults.active, where));
  TEMPER_ASSIGN_OR_RETURN(s.ffn, IntOr(config, ffn, defaults.ffn, where));
  const char* const key = config.contains(kExperts) ? kExperts : one_name;
  if (config.contains(one_name) && s.experts != other) {
    return Corrupt(fmt::format("{}: {} is {}, but {} is {}", where, kExperts, s.experts, one_name, other));
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

Result<ExpertsSpec> ReadUnbalancedExperts(Json config, const ExpertsSpec& defaults, const std::string& where,
                                          DecoderSpec* spec) {
  config.erase("output_router_logits");
  config.erase("router_aux_loss_coef");
  return ReadExperts(config, "moe_intermediate_size", defaults, where, spec, /*balance=*/0, "n_routed_experts");
}

Status ReadExpertsScale(const Json& config, const std::string& where, ExpertsSpec* experts) {
  TEMPER_ASSIGN_OR_RETURN(experts->scale, NumberOr(config, "routed_scaling_factor", experts->scale, where));
  if (experts->scale > 0 && std::isfinite(experts->scale)) return OkStatus();
  return Corrupt(fmt::format("{}: routed_scaling_factor is {}, should be positive", where, experts->scale));
}

Status ReadExpertGroups(const Json& config, const std::string& where, int64_t least, ExpertsSpec* experts) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t groups, IntOr(config, "n_group", std::max<int64_t>(experts->groups, 1), where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t top,
                          IntOr(config, "topk_group", std::max<int64_t>(experts->top_groups, 1), where));
  if (groups < 1 || experts->experts % groups != 0 || (groups > 1 && experts->experts / groups < least)) {
    return Corrupt(fmt::format("{}: n_group is {}, should divide the {} experts into groups of {} or more", where,
                               groups, experts->experts, least == 2 ? "two" : "one"));
  }
  if (top < 1 || top > groups || experts->active > experts->experts / groups * top) {
    return Corrupt(
        fmt::format("{}: topk_group is {}, should be from 1 to the {} groups, with {} experts or more in them", where,
                    top, groups, experts->active));
  }
  experts->groups = groups > 1 ? groups : 0;
  experts->top_groups = groups > 1 ? top : 0;
  return OkStatus();
}

Result<int64_t> ReadSharedExperts(const Json& config, const std::string& where, int64_t fallback,
                                  const ExpertsSpec& experts) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t shared, IntOr(config, "n_shared_experts", fallback, where));
  if (shared < 0 || shared > kMaxExperts || experts.ffn * shared > kMaxWidth) {
    return Corrupt(fmt::format("{}: n_shared_experts is {}, should be from 0 on, and their {} rows at most {}", where,
                               shared, experts.ffn, kMaxWidth));
  }
  return shared * experts.ffn;
}

Result<int64_t> SetBiasedChoice(const Json& config, const std::string& where, ExpertsSpec* experts) {
  experts->sigmoid = true;
  TEMPER_ASSIGN_OR_RETURN(experts->normalise, BoolOr(config, "norm_topk_prob", true, where));
  TEMPER_RETURN_IF_ERROR(ReadExpertsScale(config, where, experts));
  // A group's score is the sum of its two best.
  TEMPER_RETURN_IF_ERROR(ReadExpertGroups(config, where, /*least=*/2, experts));
  return ReadSharedExperts(config, where, 1, *experts);
}

ExpertsSpec WithSharedMlp(ExpertsSpec experts, int64_t shared_ffn, const MlpSpec& like) {
  if (shared_ffn == 0) return experts;
  MlpSpec shared = like;
  shared.ffn = shared_ffn;
  shared.gate = "mlp.shared_experts.gate_proj";
  shared.up = "mlp.shared_experts.up_proj";
  shared.down = "mlp.shared_experts.down_proj";
  experts.shared = std::move(shared);
  return experts;
}

Status SetExpertsBehindDense(const Json& config, int64_t fallback, const ExpertsSpec& experts, int64_t shared_ffn,
                             const std::string& where, DecoderSpec* spec) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t dense, IntOr(config, "first_k_dense_replace", fallback, where));
  if (dense < 0) return Corrupt(fmt::format("{}: first_k_dense_replace is {}, should not be negative", where, dense));
  const ExpertsSpec all = WithSharedMlp(experts, shared_ffn, *spec->mlps().front());
  for (size_t b = static_cast<size_t>(dense); b < spec->blocks.size(); ++b) spec->blocks[b].feed_forward = all;
  // Layers for drafts, which the class does not load.
  spec->facts.ignored.push_back(fmt::format(".layers.{}.", spec->blocks.size()));
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
