#include "compile/mesh/sharding_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/edit_distance.h"
#include "base/pattern.h"

namespace temper {
namespace {

constexpr std::string_view kAxisWords[] = {"fsdp", "tp", "kv", "dp", "cp", "ep", "depth", "row"};

// Parses one word of a spec into axes: "tp" and "kv" stand for the axes of tensor parallelism.
Result<std::vector<Axis>> AxesOf(std::string_view word) {
  if (word == "tp") return std::vector<Axis>{Axis::kTp, Axis::kCopy};
  if (word == "kv") return std::vector<Axis>{Axis::kTp};
  if (std::find(std::begin(kAxisWords), std::end(kAxisWords), word) != std::end(kAxisWords)) {
    return std::vector<Axis>{*ParseAxis(word)};
  }
  const auto nearest = std::min_element(std::begin(kAxisWords), std::end(kAxisWords),
                                        [&](auto a, auto b) { return EditDistance(word, a) < EditDistance(word, b); });
  return InvalidArgument(
      fmt::format("'{}' is not an axis that weights can be split over; the closest is '{}', the axes are {}", word,
                  *nearest, fmt::join(kAxisWords, ", ")));
}

// Splits `text` at `separator`; "" has one part.
std::vector<std::string_view> Cut(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t n = text.find(separator);
    parts.push_back(text.substr(0, n));
    if (n == text.npos) return parts;
    text.remove_prefix(n + 1);
  }
}

// "fsdp,-" for a matrix.
std::string ExampleSpec(int rank) {
  std::string text = "fsdp";
  for (int d = 1; d < rank; ++d) text += ",-";
  return text;
}

// The axes of each dim, including axes of one rank; "replicate" has no dims.
Result<std::vector<std::vector<Axis>>> ParseSpec(const std::string& spec) {
  std::vector<std::vector<Axis>> axes_of_dims;
  if (spec == "replicate") return axes_of_dims;
  AxisSet seen;
  for (const std::string_view dim : Cut(spec, ',')) {
    std::vector<Axis>& axes_of_dim = axes_of_dims.emplace_back();
    if (dim == "-") continue;
    for (const std::string_view word : Cut(dim, '+')) {
      TEMPER_ASSIGN_OR_RETURN(const std::vector<Axis> axes, AxesOf(word));
      for (const Axis axis : axes) {
        if (seen.Has(axis)) return InvalidArgument(fmt::format("the spec names {} twice", ToString(axis)));
        seen |= axis;
        axes_of_dim.push_back(axis);
      }
    }
  }
  return axes_of_dims;
}

// Applies `spec`, of at least one dim, to a tensor. Axes of one rank are dropped.
Result<Sharding> Apply(std::span<const std::vector<Axis>> spec, const Mesh& mesh, const Value& v) {
  const int rank = v.type.shape.rank();
  if (static_cast<int>(spec.size()) != rank) {
    return InvalidArgument(fmt::format("the spec has {} dim{}, but {} is {}: write {}, such as '{}', or 'replicate'",
                                       spec.size(), spec.size() == 1 ? "" : "s", v.name, v.type.ToString(), rank,
                                       ExampleSpec(rank)));
  }
  Sharding p;
  for (size_t d = 0; d < spec.size(); ++d) {
    std::copy_if(spec[d].begin(), spec[d].end(), std::back_inserter(p.dims[d]),
                 [&](Axis axis) { return mesh.size(axis) > 1; });
  }
  return p;
}

}  // namespace

std::optional<std::string> SpecOfLabels(const DimLabels& labels, ResidualSplit residual, bool whole_rows) {
  if (labels.empty()) return std::nullopt;
  const int rank = labels.rank(), out = std::max(rank - 2, 0);
  // The axis for a product's out dim, or its bias, in 2-D modes; for any dim in 1-D.
  const auto cut_out = [](DimLabel label) {
    return label == DimLabel::kRank || label == DimLabel::kNorm ? "" : label == DimLabel::kKvHeads ? "kv" : "tp";
  };
  const auto by_label = [](DimLabel label) {
    switch (label) {
      case DimLabel::kHeads:
      case DimLabel::kFfn:
      case DimLabel::kVocab:
      case DimLabel::kPositions:
        return "tp";
      case DimLabel::kKvHeads:
        return "kv";
      case DimLabel::kNone:
      case DimLabel::kHidden:
      case DimLabel::kEmbed:
      case DimLabel::kNorm:
      case DimLabel::kRank:
      case DimLabel::kExperts:
        return "";
    }
    return "";
  };
  std::string spec;
  for (int d = 0; d < rank; ++d) {
    std::string dim = by_label(labels[d]);
    if (residual == ResidualSplit::kHidden) {
      dim = d == out ? cut_out(labels[d]) : d > out && !labels.Has(DimLabel::kRank) && !whole_rows ? "row" : "";
      if (d == out && whole_rows) dim += "+row";
    }
    // Ranks of ep have whole experts; what is left of a model they share as those of fsdp do.
    const bool stack = rank == 3 && labels[0] == DimLabel::kExperts;
    if (d == 0) dim += stack ? "ep+fsdp+cp" : dim.empty() ? "fsdp+cp+ep" : "+fsdp+cp+ep";
    spec += (d > 0 ? "," : "") + (dim.empty() ? "-" : dim);
  }
  return spec;
}

std::string NameOfRule(std::span<const ShardingRule> rules, size_t index) {
  return fmt::format("sharding rule {} ['{}', '{}']", index + 1, rules[index].pattern, rules[index].spec);
}

std::vector<std::string> IdleRules(std::span<const ShardingRule> rules, const ShardedWeights& sharded) {
  std::vector<bool> decides(rules.size(), false);
  for (const auto& [name, rule] : sharded.rule_of) decides[rule] = true;
  std::vector<std::string> idle;
  for (size_t r = 0; r < rules.size(); ++r) {
    if (decides[r]) continue;
    idle.push_back(NameOfRule(rules, r) + " has no effect: no tensor matches it, except those of earlier rules");
  }
  return idle;
}

Result<ShardedWeights> ShardWeights(const Graph& forward, const Mesh& mesh, std::span<const ShardingRule> rules,
                                    ResidualSplit residual) {
  std::vector<Pattern> patterns;
  std::vector<std::vector<std::vector<Axis>>> specs;
  for (size_t r = 0; r < rules.size(); ++r) {
    auto pattern = Pattern::Compile(".*(?:" + rules[r].pattern + ").*");
    if (!pattern.ok()) return pattern.status().WithContext(NameOfRule(rules, r));
    patterns.push_back(std::move(*pattern));
    auto spec = ParseSpec(rules[r].spec);
    if (!spec.ok()) return spec.status().WithContext(NameOfRule(rules, r));
    specs.push_back(std::move(*spec));
  }
  ShardedWeights sharded;
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& v = forward.value(id);
    if (v.role != Role::kWeight && v.role != Role::kAdapter) continue;
    size_t r = 0;
    for (; r < rules.size(); ++r) {
      TEMPER_ASSIGN_OR_RETURN(const bool matches, patterns[r].Matches(v.name));
      if (matches) break;
    }
    Sharding& sharding = sharded.shardings[v.name];
    if (r < rules.size()) {
      Result<Sharding> ruled = specs[r].empty() ? Sharding() : Apply(specs[r], mesh, v);
      if (!ruled.ok()) return ruled.status().WithContext(NameOfRule(rules, r));
      sharding = *ruled;
      sharded.rule_of[v.name] = r;
    } else if (const std::optional<std::string> spec = SpecOfLabels(v.labels, residual, v.type.dtype.quantised())) {
      TEMPER_ASSIGN_OR_RETURN(const auto axes, ParseSpec(*spec));
      TEMPER_ASSIGN_OR_RETURN(sharding, Apply(axes, mesh, v));
    } else if (v.type.shape.elements() > 1) {
      return InvalidArgument(
          fmt::format("no sharding rule matches {} {}: give one, such as mesh.sharding: [['{}', '{}']]", v.name,
                      v.type.ToString(), v.name, ExampleSpec(v.type.shape.rank())));
    }
  }
  return sharded;
}

Result<Graph> PartitionByRules(const Graph& forward, const PartitionSpec& spec, std::span<const ShardingRule> rules) {
  TEMPER_ASSIGN_OR_RETURN(const ShardedWeights sharded, ShardWeights(forward, spec.mesh, rules, spec.residual));
  return PartitionAsSharded(forward, spec, sharded, rules);
}

Result<Graph> PartitionAsSharded(const Graph& forward, const PartitionSpec& spec, const ShardedWeights& sharded,
                                 std::span<const ShardingRule> rules) {
  std::map<std::string, std::string> given;
  for (const auto& [name, rule] : sharded.rule_of) given[name] = NameOfRule(rules, rule);
  PartitionSpec with = spec;
  with.weights = &sharded.shardings;
  with.given_rules = &given;
  return Partition(forward, with);
}

}  // namespace temper
