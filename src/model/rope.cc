#include "model/rope.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/named_ops.h"

namespace temper {
namespace {

const Json& Nothing() {
  static const Json* const kNothing = new Json();
  return *kNothing;
}

// The object under `key`, or null.
const Json& ObjectAt(const Json& json, const char* key) {
  if (!json.is_object()) return Nothing();
  const auto it = json.find(key);
  return it != json.end() && it->is_object() ? *it : Nothing();
}

// The parameters of scaling: transformers 4 wrote rope_scaling, 5
// writes rope_parameters, one for each type of layer if these differ.
const Json& ParametersOf(const Json& config, const char* layer_type) {
  const Json& old = ObjectAt(config, "rope_scaling");
  const Json& all = old.empty() ? ObjectAt(config, "rope_parameters") : old;
  const Json& of_type = layer_type == nullptr ? Nothing() : ObjectAt(all, layer_type);
  return of_type.is_null() ? all : of_type;
}

// 1 / theta^(2 i / dims), i < dims / 2.
std::vector<double> Plain(double theta, int64_t dims) {
  std::vector<double> inv_freq;
  for (int64_t i = 0; i < dims / 2; ++i) {
    inv_freq.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  return inv_freq;
}

// The parameters of one embedding; those that all types share are checked.
struct Parameters {
  const Json& json;
  const std::string& where;
  double theta;
  int64_t dims, max_positions, original;  // dims: rotary elements of a head

  Result<double> Positive(const char* key, double fallback, const char* type) const {
    TEMPER_ASSIGN_OR_RETURN(const double x, NumberOr(json, key, fallback, where));
    if (!(x > 0)) {
      return Corrupt(fmt::format("{}: {} rope scaling needs {} > 0, not {}", where, type, key, x));
    }
    return x;
  }
};

Status StretchLlama3(const Parameters& p, RopeSpec* rope) {
  TEMPER_ASSIGN_OR_RETURN(const double factor, NumberOr(p.json, "factor", 8, p.where));
  TEMPER_ASSIGN_OR_RETURN(const double low, NumberOr(p.json, "low_freq_factor", 1, p.where));
  TEMPER_ASSIGN_OR_RETURN(const double high, NumberOr(p.json, "high_freq_factor", 4, p.where));
  if (!(factor > 0) || !(high > low)) {
    return Corrupt(p.where + ": llama3 rope scaling needs factor > 0 and high_freq_factor > low_freq_factor");
  }
  for (double& f : rope->inv_freq) {
    const double plain = f;
    const double wavelength = 2 * M_PI / f;
    const double turns = static_cast<double>(p.original) / wavelength;  // of the pair within the original context
    const double smooth = (turns - low) / (high - low);
    if (turns < low) {
      f /= factor;
    } else if (turns <= high) {
      f = (1 - smooth) * f / factor + smooth * f;
    }
    rope->described.short_factor.push_back(plain / f);
  }
  rope->described.factor = factor;
  return OkStatus();
}

// YaRN (Peng et al. 2023): high frequencies stay, low ones are divided by `factor`, those between are interpolated.
Status StretchYarn(const Parameters& p, RopeSpec* rope) {
  const auto length = static_cast<double>(p.original);
  TEMPER_ASSIGN_OR_RETURN(const double factor,
                          p.Positive("factor", static_cast<double>(p.max_positions) / length, "yarn"));
  TEMPER_ASSIGN_OR_RETURN(double fast, NumberOr(p.json, "beta_fast", 32, p.where));
  TEMPER_ASSIGN_OR_RETURN(double slow, NumberOr(p.json, "beta_slow", 1, p.where));
  if (fast == 0) fast = 32;  // as transformers does
  if (slow == 0) slow = 1;
  TEMPER_ASSIGN_OR_RETURN(const double m, NumberOr(p.json, "mscale", 0, p.where));
  TEMPER_ASSIGN_OR_RETURN(const double m_all, NumberOr(p.json, "mscale_all_dim", 0, p.where));
  TEMPER_ASSIGN_OR_RETURN(const bool truncate, BoolOr(p.json, "truncate", true, p.where));
  if (!(fast > 0 && slow > 0 && m >= 0 && m_all >= 0) || p.theta == 1) {
    return Corrupt(
        fmt::format("{}: yarn rope scaling needs beta_fast ({}), beta_slow ({}) > 0, mscale ({}), "
                    "mscale_all_dim ({}) >= 0 and a rope_theta that is not 1",
                    p.where, fast, slow, m, m_all));
  }
  const auto scale_of = [&](double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; };
  const double scale = m != 0 && m_all != 0 ? scale_of(m) / scale_of(m_all) : scale_of(1);
  rope->described.factor = factor;
  rope->described.beta_fast = fast;
  rope->described.beta_slow = slow;
  rope->described.truncates = truncate;
  TEMPER_ASSIGN_OR_RETURN(rope->scale, p.Positive("attention_factor", scale, "yarn"));
  const auto dims = static_cast<double>(p.dims);
  const auto dim_of = [&](double turns) {
    return dims * std::log(length / (turns * 2 * M_PI)) / (2 * std::log(p.theta));
  };
  double low = dim_of(fast), high = dim_of(slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < rope->inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    rope->inv_freq[i] = rope->inv_freq[i] / factor * ramp + rope->inv_freq[i] * (1 - ramp);
  }
  return OkStatus();
}

// Reads a list of one factor per pair.
Result<std::vector<double>> FactorsAt(const Parameters& p, const char* key) {
  const Json& list = p.json.contains(key) ? p.json[key] : Nothing();
  std::vector<double> factors;
  if (list.is_array()) {
    for (const Json& x : list) {
      if (x.is_number() && x.get<double>() > 0) factors.push_back(x.get<double>());
    }
  }
  if (static_cast<int64_t>(factors.size()) != p.dims / 2 || list.size() != factors.size()) {
    return Corrupt(
        fmt::format("{}: {} of rope scaling should be a list of {} positive numbers", p.where, key, p.dims / 2));
  }
  return factors;
}

// LongRoPE (Ding et al. 2024): each frequency has its own factor, and another one for long contexts.
Status StretchLongrope(const Parameters& p, RopeSpec* rope) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> near, FactorsAt(p, "short_factor"));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<double> far, FactorsAt(p, "long_factor"));
  const double original = static_cast<double>(p.original);
  TEMPER_ASSIGN_OR_RETURN(const double factor,
                          p.Positive("factor", static_cast<double>(p.max_positions) / original, "longrope"));
  const double scale = factor <= 1 || p.original == 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  TEMPER_ASSIGN_OR_RETURN(rope->scale, p.Positive("attention_factor", scale, "longrope"));
  rope->described.factor = factor;
  rope->described.short_factor = near;
  rope->described.long_factor = far;
  rope->long_inv_freq = rope->inv_freq;
  for (size_t i = 0; i < near.size(); ++i) {
    rope->inv_freq[i] /= near[i];
    rope->long_inv_freq[i] /= far[i];
  }
  rope->original = p.original;
  return OkStatus();
}

std::vector<double> InF32(std::vector<double> inv_freq) {
  for (double& f : inv_freq) f = static_cast<double>(static_cast<float>(f));
  return inv_freq;
}

}  // namespace

Result<RopeSpec> ReadRope(const Json& config, const char* layer_type, const RopeDefaults& defaults, int64_t head_dim,
                          int64_t max_positions, const std::string& where) {
  const Json& json = ParametersOf(config, layer_type);
  if (layer_type == nullptr && json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      if (!value.is_object()) continue;
      return Unsupported(fmt::format("{}: rope_parameters for each type of layer ({}) are not supported here", where,
                                     key.substr(0, 40)));
    }
  }
  RopeSpec rope;
  TEMPER_ASSIGN_OR_RETURN(std::string type, StringOr(json, "rope_type", "", where));
  if (type.empty()) {
    TEMPER_ASSIGN_OR_RETURN(type, StringOr(json, "type", defaults.type, where));
  }
  TEMPER_ASSIGN_OR_RETURN(double theta, NumberOr(config, "rope_theta", defaults.theta, where));
  TEMPER_ASSIGN_OR_RETURN(theta, NumberOr(json, "rope_theta", theta, where));
  if (!(theta > 0)) return Corrupt(fmt::format("{}: rope_theta is {}, should be positive", where, theta));
  TEMPER_ASSIGN_OR_RETURN(double partial, NumberOr(config, "partial_rotary_factor", defaults.partial, where));
  TEMPER_ASSIGN_OR_RETURN(partial, NumberOr(json, "partial_rotary_factor", partial, where));
  const bool proportional = type == "proportional";
  const auto turning = static_cast<int64_t>(static_cast<double>(head_dim) * partial);
  const int64_t dims = proportional ? head_dim : turning;
  if (!(partial > 0 && partial <= 1) || dims < 2 || dims % 2 != 0) {
    return Corrupt(fmt::format(
        "{}: partial_rotary_factor {} of head_dim {} should give an even number of rotary elements, at least 2", where,
        partial, head_dim));
  }
  // transformers' other classes rotate whole heads, or fail.
  if (partial != 1 && !proportional && defaults.partial == 1 && !defaults.may_be_partial) {
    return Unsupported(
        fmt::format("{}: partial_rotary_factor is {}, but this architecture rotates whole heads", where, partial));
  }
  const int64_t fallback = defaults.original > 0 ? defaults.original : max_positions;
  TEMPER_ASSIGN_OR_RETURN(int64_t original, IntOr(json, "original_max_position_embeddings", fallback, where));
  // Of a class that has the key itself (Phi-3), a value beside the parameters takes precedence over one inside them.
  if (defaults.original > 0) {
    TEMPER_ASSIGN_OR_RETURN(original, IntOr(config, "original_max_position_embeddings", defaults.original, where));
  }
  if (original <= 0) {
    return Corrupt(fmt::format("{}: original_max_position_embeddings is {}, should be positive", where, original));
  }
  rope.inv_freq = Plain(theta, dims);
  const Parameters p{json, where, theta, dims, max_positions, original};
  if (defaults.yarn_is_longrope && (type == "su" || type == "yarn")) type = "longrope";
  using enum RopeDescription::Type;
  rope.described.theta = theta;
  rope.described.original = original;
  if (type == "linear") {
    rope.described.type = kLinear;
    TEMPER_ASSIGN_OR_RETURN(const double factor, p.Positive("factor", 1, "linear"));
    for (double& f : rope.inv_freq) f /= factor;
    rope.described.factor = factor;
  } else if (proportional) {
    rope.described.type = kProportional;
    TEMPER_ASSIGN_OR_RETURN(const double factor, p.Positive("factor", 1, "proportional"));
    for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
      rope.inv_freq[i] = static_cast<int64_t>(i) < turning / 2 ? rope.inv_freq[i] / factor : 0;
    }
    rope.described.factor = factor;
  } else if (type == "dynamic") {
    rope.described.type = kDynamic;
    TEMPER_ASSIGN_OR_RETURN(rope.dynamic_factor, p.Positive("factor", 1, "dynamic"));
    rope.theta = theta;
    rope.original = max_positions;
    if (dims <= 2) return Unsupported(where + ": dynamic rope scaling needs more than 2 rotary elements");
  } else if (type == "llama3") {
    rope.described.type = kLlama3;
    TEMPER_RETURN_IF_ERROR(StretchLlama3(p, &rope));
  } else if (type == "yarn") {
    rope.described.type = kYarn;
    TEMPER_RETURN_IF_ERROR(StretchYarn(p, &rope));
  } else if (type == "longrope") {
    rope.described.type = kLongrope;
    TEMPER_RETURN_IF_ERROR(StretchLongrope(p, &rope));
  } else if (type != "default") {
    return Unsupported(
        fmt::format("{}: rope scaling '{}' is not supported; supported are default, linear, dynamic, "
                    "llama3, yarn, longrope and proportional",
                    where, type));
  }
  rope.inv_freq = InF32(std::move(rope.inv_freq));
  rope.long_inv_freq = InF32(std::move(rope.long_inv_freq));
  return rope;
}

Status ReadPositionScale(const Json& config, const char* key, const std::string& where, RopeSpec* rope) {
  const Json& json = ParametersOf(config, nullptr);
  TEMPER_ASSIGN_OR_RETURN(rope->position_beta, NumberOr(json, key, 0, where));
  TEMPER_ASSIGN_OR_RETURN(rope->position_original, IntOr(json, "original_max_position_embeddings", 0, where));
  if (rope->position_beta != 0 && rope->position_original <= 0) {
    return Corrupt(fmt::format("{}: {} needs original_max_position_embeddings > 0", where, key));
  }
  return OkStatus();
}

Result<double> ReadScoreFactor(const Json& config, const std::string& where) {
  const Json& json = ParametersOf(config, nullptr);
  TEMPER_ASSIGN_OR_RETURN(std::string type, StringOr(json, "rope_type", "", where));
  if (type.empty()) {
    TEMPER_ASSIGN_OR_RETURN(type, StringOr(json, "type", "default", where));
  }
  TEMPER_ASSIGN_OR_RETURN(const double m_all, NumberOr(json, "mscale_all_dim", 0, where));
  if (type == "default" || m_all == 0) return 1.0;
  TEMPER_ASSIGN_OR_RETURN(const double factor, NumberOr(json, "factor", 0, where));
  if (!(factor > 0) || !(m_all > 0)) {
    return Corrupt(fmt::format("{}: rope scaling with mscale_all_dim ({}) needs that and factor ({}) to be positive",
                               where, m_all, factor));
  }
  const double m = factor <= 1 ? 1 : 0.1 * m_all * std::log(factor) + 1;
  return m * m;
}

ValueId RopeTableOf(ForwardBuilder& builder, const RopeSpec& rope, bool of_queries, const std::string& name) {
  Attributes attributes = {{"inv_freq", rope.inv_freq}};
  if (rope.interleaved) attributes.Set("interleaved", int64_t{1});
  if (rope.scale != 1) attributes.Set("scale", rope.scale);
  if (of_queries && rope.position_beta != 0) {
    attributes.Set("beta", rope.position_beta);
    attributes.Set("original", rope.position_original);
  }
  std::vector<ValueId> inputs = {builder.position()};
  if (rope.HasLongDocuments(builder.spec().context())) {
    inputs.push_back(builder.document_length());
    attributes.Set("document_length", int64_t{1});
    attributes.Set("near", rope.original);
    if (rope.long_inv_freq.empty()) {
      attributes.Set("theta", rope.theta);
      attributes.Set("factor", rope.dynamic_factor);
    } else {
      attributes.Set("long_inv_freq", rope.long_inv_freq);
    }
  }
  return builder.Add(Op::kRopeTable, std::move(inputs), std::move(attributes), name)[0];
}

}  // namespace temper
