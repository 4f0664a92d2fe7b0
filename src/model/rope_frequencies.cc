#include "model/rope_frequencies.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace temper {
namespace {

// The object that describes scaling, or null: v5's rope_parameters, else v4's rope_scaling.
const Json& ScalingOf(const Json& config) {
  static const Json* const kNone = new Json();
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto it = config.find(key);
    if (it != config.end() && it->is_object()) return *it;
  }
  return *kNone;
}

Status StretchLlama3(const Json& scaling, int64_t max_positions, const std::string& where,
                     std::vector<double>* inv_freq) {
  TEMPER_ASSIGN_OR_RETURN(const double factor, NumberOr(scaling, "factor", 8, where));
  TEMPER_ASSIGN_OR_RETURN(const double low, NumberOr(scaling, "low_freq_factor", 1, where));
  TEMPER_ASSIGN_OR_RETURN(const double high, NumberOr(scaling, "high_freq_factor", 4, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t original,
                          IntOr(scaling, "original_max_position_embeddings", max_positions, where));
  if (!(factor > 0) || !(high > low) || original <= 0) {
    return Corrupt(where +
                   ": llama3 rope scaling needs factor > 0, high_freq_factor > low_freq_factor and "
                   "original_max_position_embeddings > 0");
  }
  for (double& f : *inv_freq) {
    const double wavelength = 2 * M_PI / f;
    const double turns = static_cast<double>(original) / wavelength;  // of the wave within the original context
    const double smooth = (turns - low) / (high - low);
    if (turns < low) {
      f /= factor;
    } else if (turns <= high) {
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<double>> RopeFrequencies(const Json& config, int64_t head_dim, int64_t max_positions,
                                            const std::string& where) {
  const Json& scaling = ScalingOf(config);
  TEMPER_ASSIGN_OR_RETURN(double theta, NumberOr(config, "rope_theta", 10000.0, where));
  TEMPER_ASSIGN_OR_RETURN(theta, NumberOr(scaling, "rope_theta", theta, where));
  if (!(theta > 0)) return Corrupt(fmt::format("{}: rope_theta is {}, should be positive", where, theta));
  for (const Json* part : {&config, &scaling}) {
    TEMPER_ASSIGN_OR_RETURN(const double partial, NumberOr(*part, "partial_rotary_factor", 1.0, where));
    if (partial != 1.0)
      return Unsupported(fmt::format("{}: partial_rotary_factor {} is not supported", where, partial));
  }
  std::vector<double> inv_freq;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    inv_freq.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  TEMPER_ASSIGN_OR_RETURN(std::string type, StringOr(scaling, "rope_type", "", where));
  if (type.empty()) {
    TEMPER_ASSIGN_OR_RETURN(type, StringOr(scaling, "type", "default", where));
  }
  if (type == "linear") {
    TEMPER_ASSIGN_OR_RETURN(const double factor, NumberOr(scaling, "factor", 1.0, where));
    if (!(factor > 0)) return Corrupt(where + ": linear rope scaling needs factor > 0");
    for (double& f : inv_freq) f /= factor;
  } else if (type == "llama3") {
    TEMPER_RETURN_IF_ERROR(StretchLlama3(scaling, max_positions, where, &inv_freq));
  } else if (type != "default") {
    return Unsupported(
        fmt::format("{}: rope scaling '{}' is not supported; supported are default, linear and llama3", where, type));
  }
  for (double& f : inv_freq) f = static_cast<double>(static_cast<float>(f));
  return inv_freq;
}

}  // namespace temper
