#include "model/mixture.h"

#include <fmt/core.h>

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

}  // namespace temper
