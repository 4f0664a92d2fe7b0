#include "compile/placement_rules.h"

#include <fmt/format.h>

#include "base/pattern.h"

namespace temper {
namespace {

// One word of a spec as axes: "tp" and "kv" are names for what tensor parallelism is made of.
Result<std::vector<Axis>> AxesOf(std::string_view word) {
  if (word == "tp") return std::vector<Axis>{Axis::kTp, Axis::kCopy};
  if (word == "kv") return std::vector<Axis>{Axis::kTp};
  if (const auto axis = ParseAxis(word); axis && *axis != Axis::kPp && *axis != Axis::kCopy)
    return std::vector<Axis>{*axis};
  return InvalidArgument(
      fmt::format("'{}' is no axis that weights are split over; they are dp, fsdp, cp, tp, kv, and "
                  "depth and row of tp modes 2d and 2.5d",
                  word));
}

// Cuts `text` at `separator`; "" has one part.
std::vector<std::string_view> Cut(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t n = text.find(separator);
    parts.push_back(text.substr(0, n));
    if (n == text.npos) return parts;
    text.remove_prefix(n + 1);
  }
}

Result<Placement> ParseSpec(const std::string& spec, const Mesh& mesh, const Value& v) {
  Placement p;
  AxisSet seen;
  const auto dims = Cut(spec, ',');
  if (static_cast<int>(dims.size()) > v.type.shape.rank()) {
    return InvalidArgument(
        fmt::format("spec '{}' has {} dims, but {} is {}", spec, dims.size(), v.name, v.type.ToString()));
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == "-" || dims[d].empty()) continue;
    for (const std::string_view word : Cut(dims[d], '+')) {
      TEMPER_ASSIGN_OR_RETURN(const std::vector<Axis> axes, AxesOf(word));
      for (const Axis axis : axes) {
        if (seen.Has(axis)) return InvalidArgument(fmt::format("spec '{}' names {} twice", spec, ToString(axis)));
        seen |= axis;
        if (mesh.size(axis) > 1) p.dims[d].push_back(axis);
      }
    }
  }
  return p;
}

}  // namespace

std::vector<PlacementRule> DefaultPlacementRules(ResidualSplit residual) {
  if (residual == ResidualSplit::kHidden) {
    return {{R"(\.lora_A\.)", "fsdp+cp,-"},         {R"((k|v)_proj\.(weight|lora_B))", "kv+fsdp+cp,row"},
            {R"((k|v)_proj\.bias$)", "kv+fsdp+cp"}, {R"(norm\.(weight|bias)$)", "fsdp+cp"},
            {R"(\.bias$)", "tp+fsdp+cp"},           {R"(\.lora_B\.)", "tp+fsdp+cp,-"},
            {R"(\.weight$)", "tp+fsdp+cp,row"}};
  }
  return {{R"((q_proj|gate_proj|up_proj|fc1|lm_head)\.(weight|lora_B))", "tp+fsdp+cp,-"},
          {R"((k|v)_proj\.(weight|lora_B))", "kv+fsdp+cp,-"},
          {R"((q_proj|gate_proj|up_proj|fc1)\.bias$)", "tp+fsdp+cp"},
          {R"((k|v)_proj\.bias$)", "kv+fsdp+cp"},
          {R"((o_proj|out_proj|down_proj|fc2)\.(weight|lora_A))", "fsdp+cp,tp"},
          {R"(embed_(tokens|positions)\.)", "tp+fsdp+cp,-"},
          {R"(project_(in|out)\.)", "fsdp+cp,-"},
          {R"(\.lora_(A|B)\.)", "fsdp+cp,-"},
          {R"(norm\.(weight|bias)$)", "fsdp+cp"},
          {R"(\.bias$)", "fsdp+cp"}};
}

Result<std::map<std::string, Placement>> PlaceWeights(const Graph& forward, const Mesh& mesh,
                                                      std::span<const PlacementRule> rules) {
  std::vector<Pattern> patterns;
  for (const PlacementRule& rule : rules) {
    auto pattern = Pattern::Compile(".*(?:" + rule.pattern + ").*");
    if (!pattern.ok())
      return pattern.status().WithContext(fmt::format("placement rule ['{}', '{}']", rule.pattern, rule.spec));
    patterns.push_back(std::move(*pattern));
  }
  std::map<std::string, Placement> placements;
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& v = forward.value(id);
    if (v.role != Role::kWeight && v.role != Role::kAdapter) continue;
    size_t r = 0;
    for (; r < rules.size(); ++r) {
      TEMPER_ASSIGN_OR_RETURN(const bool matches, patterns[r].Matches(v.name));
      if (matches) break;
    }
    if (r < rules.size()) {
      auto placement = ParseSpec(rules[r].spec, mesh, v);
      if (!placement.ok()) {
        return placement.status().WithContext(
            fmt::format("placement rule ['{}', '{}']", rules[r].pattern, rules[r].spec));
      }
      placements[v.name] = *placement;
    } else if (v.type.shape.elements() > 1) {
      return InvalidArgument(fmt::format("no placement rule matches {} {}: prepend one, such as ['{}', '-']", v.name,
                                         v.type.ToString(), v.name));
    } else {
      placements[v.name] = {};
    }
  }
  return placements;
}

}  // namespace temper
