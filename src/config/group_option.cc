#include "config/group_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "config/option_set.h"
#include "config/yaml_text.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr char kName[] = "optimizer_groups";

// A group as it is read.
struct Draft {
  TextOrList modules = std::vector<std::string>();
  std::optional<double> learning_rate, weight_decay;
};

OptionSet OptionsOf(Draft& draft) {
  std::vector<Option> options = {{"modules", &draft.modules, ""},
                                 {"learning_rate", &draft.learning_rate, "", {.at_least = 0}},
                                 {"weight_decay", &draft.weight_decay, "", {.at_least = 0}}};
  return OptionSet({{"", std::move(options)}}, {});
}

Result<OptimizerGroup> GroupOf(const OrderedJson& json, const std::string& where) {
  if (!json.is_object()) {
    return InvalidArgument(
        fmt::format("{}: {}: a group should be a map, such as {{modules: lm_head, learning_rate: "
                    "1e-5}}",
                    where, kName));
  }
  Draft draft;
  const OptionSet options = OptionsOf(draft);
  for (const auto& [key, value] : json.items()) {
    const Option* const option = options.Find(key);
    if (option == nullptr) {
      return InvalidArgument(
          fmt::format("{}: {}: unknown setting {} of a group; {}", where, kName, Quoted(key), options.Advice(key)));
    }
    TEMPER_RETURN_IF_ERROR(SetFromJson(*option, value, where + ", " + kName));
  }
  OptimizerGroup group{.learning_rate = draft.learning_rate, .weight_decay = draft.weight_decay};
  if (const auto* names = std::get_if<std::vector<std::string>>(&draft.modules)) {
    group.modules = *names;
  } else {
    group.modules = {std::get<std::string>(draft.modules)};
  }
  if (group.modules.empty()) return InvalidArgument(fmt::format("{}: {} has a group without modules", where, kName));
  if (group.learning_rate || group.weight_decay) return group;
  return InvalidArgument(
      fmt::format("{}: {}: the group of {} has neither learning_rate nor weight_decay: it is as all others, remove it",
                  where, kName, Quoted(group.modules.front())));
}

std::string AsYaml(const OptimizerGroup& group) {
  std::vector<std::string> names;
  for (const std::string& name : group.modules) names.push_back(TextAsYaml(name));
  std::string text = fmt::format("{{modules: [{}]", fmt::join(names, ", "));
  if (group.learning_rate) text += ", learning_rate: " + NumberAsYaml(*group.learning_rate);
  if (group.weight_decay) text += ", weight_decay: " + NumberAsYaml(*group.weight_decay);
  return text + "}";
}

}  // namespace

Option GroupsOption(std::vector<OptimizerGroup>& groups) {
  const auto set = [&groups](const OrderedJson& value, const std::string& where, bool more) -> Status {
    std::vector<OptimizerGroup> changed = more ? groups : std::vector<OptimizerGroup>();
    const bool none = value.is_null() || (value.is_string() && MeansUnset(value.get_ref<const std::string&>()));
    const OrderedJson list = none ? OrderedJson::array() : value.is_array() ? value : OrderedJson::array({value});
    for (const OrderedJson& element : list) {
      TEMPER_ASSIGN_OR_RETURN(changed.emplace_back(), GroupOf(element, where));
    }
    groups = std::move(changed);
    return OkStatus();
  };
  const auto as_yaml = [&groups] {
    std::vector<std::string> texts;
    for (const OptimizerGroup& group : groups) texts.push_back(AsYaml(group));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  };
  return {.name = kName,
          .target = Repeatable{.set = set, .as_yaml = as_yaml},
          .help =
              "modules with a learning rate or weight decay of their own, such as {modules: [lm_head], learning_rate: "
              "1e-5, weight_decay: 0}; the rate follows the run's schedule. Repeat it for several groups",
          .value_hint = "GROUP",
          .unsaid = "[]"};
}

}  // namespace temper
