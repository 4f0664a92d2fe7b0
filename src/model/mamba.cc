#include "model/mamba.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "graph/ops/short_conv.h"

namespace temper {
namespace {

// The class clamps steps to this range. Only a range that changes no step is supported.
Status ExpectAnyStep(const Json& config, const std::string& where) {
  const auto limit = config.find("time_step_limit");
  if (limit == config.end() || limit->is_null()) return OkStatus();
  static const Json infinity = {{"__float__", "Infinity"}};  // as transformers writes it
  if (limit->is_array() && limit->size() == 2 && (*limit)[0].is_number() && (*limit)[0].get<double>() <= 0 &&
      (*limit)[1] == infinity) {
    return OkStatus();
  }
  return Unsupported(fmt::format("{}: time_step_limit is {}; supported are all steps, from 0 to infinity", where,
                                 DumpJson(*limit).substr(0, 60)));
}

}  // namespace

Result<Mamba2Spec> ReadMamba2(const Json& config, int64_t width, const std::string& width_name, double norm_eps,
                              const std::string& where) {
  Mamba2Spec m{.norm_eps = norm_eps};
  TEMPER_ASSIGN_OR_RETURN(m.heads, IntOr(config, "mamba_n_heads", 128, where));
  TEMPER_ASSIGN_OR_RETURN(m.groups, IntOr(config, "mamba_n_groups", 1, where));
  TEMPER_ASSIGN_OR_RETURN(m.state_dim, IntOr(config, "mamba_d_state", 256, where));
  TEMPER_ASSIGN_OR_RETURN(m.taps, IntOr(config, "mamba_d_conv", 4, where));
  TEMPER_ASSIGN_OR_RETURN(m.conv_bias, BoolOr(config, "mamba_conv_bias", true, where));
  if (!IsSane(m.heads, kMaxHeads) || !IsSane(m.state_dim, kMaxHeads) || !IsSane(m.groups, kMaxHeads) ||
      !IsSane(width, kMaxWidth) || width % m.heads != 0 || m.heads % m.groups != 0) {
    return Corrupt(fmt::format(
        "{}: {} should be a positive multiple of mamba_n_heads {}, that one of mamba_n_groups {}, and mamba_d_state {} "
        "positive",
        where, width_name, m.heads, m.groups, m.state_dim));
  }
  m.value_dim = width / m.heads;
  const auto head = config.find("mamba_d_head");
  if (head != config.end() && *head != "auto" && *head != m.value_dim) {
    return Corrupt(fmt::format("{}: mamba_d_head is {}, should be \"auto\" or {} by mamba_n_heads {}: {}", where,
                               DumpJson(*head).substr(0, 40), width_name, m.heads, m.value_dim));
  }
  if (m.taps < 1 || m.taps > kMaxConvTaps) {
    return Unsupported(fmt::format("{}: mamba_d_conv is {}; convolutions of 1 to {} tokens are supported", where,
                                   m.taps, kMaxConvTaps));
  }
  TEMPER_RETURN_IF_ERROR(ExpectAnyStep(config, where));
  return m;
}

}  // namespace temper
