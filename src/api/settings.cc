#include "api/settings.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <variant>

#include "config/foreign_names.h"
#include "config/option_yaml.h"
#include "config/run_options.h"
#include "format/quoted.h"

namespace temper {
namespace {

const char* const kWhere = "settings";

Status Apply(const Settings::Entry& entry, const OptionSet& options) {
  const Option* const option = options.Find(entry.name);
  if (option == nullptr && options.IsSection(entry.name) && !entry.adds) {
    return ReadYamlOptions(fmt::format("{}: {}", entry.name, entry.value), kWhere, options);
  }
  if (option == nullptr) {
    return InvalidArgument(
        fmt::format("{}: there is no setting {}; {}", kWhere, Quoted(entry.name), options.Advice(entry.name)));
  }
  const bool is_list = std::holds_alternative<Repeatable>(option->target);
  if (entry.adds && !is_list) {
    return InvalidArgument(
        fmt::format("{}: {} takes one value: set it, instead of adding to it", kWhere, option->name));
  }
  if (entry.adds) return AddFromText(*option, entry.value, kWhere);
  // Present without a text, as in YAML.
  const bool is_truth = entry.value == "true" || entry.value == "false";
  if (std::holds_alternative<OptionalText>(option->target) && is_truth) {
    return SetFromJson(*option, entry.value == "true", kWhere);
  }
  return SetFromText(*option, entry.value, kWhere);
}

}  // namespace

Settings Settings::Yaml(std::string text, std::string file) {
  Settings settings;
  settings.yaml_ = std::move(text);
  settings.file_ = std::move(file);
  return settings;
}

Settings& Settings::Set(std::string name, std::string value) {
  entries_.push_back({std::move(name), std::move(value)});
  return *this;
}

Settings& Settings::Add(std::string name, std::string value) {
  entries_.push_back({std::move(name), std::move(value), /*adds=*/true});
  return *this;
}

Status ApplySettings(const Settings& settings, const OptionSet& options) {
  if (!settings.yaml().empty()) {
    const Status read = ReadYamlOptions(settings.yaml(), settings.file(), options);
    if (!read.ok()) return InvalidArgument(read.message());  // always a mistake in the settings
  }
  for (const Settings::Entry& entry : settings.entries()) TEMPER_RETURN_IF_ERROR(Apply(entry, options));
  return OkStatus();
}

Status ReadSettings(const Settings& settings, std::vector<OptionGroup> groups) {
  const OptionSet options(std::move(groups), ForeignNames());
  TEMPER_RETURN_IF_ERROR(ApplySettings(settings, options));
  return options.CheckRanges();
}

Result<RunRequest> RunOfSettings(const Settings& settings, Purpose purpose, std::vector<OptionGroup> more) {
  RunRequest request;
  std::vector<OptionGroup> groups = RunOptionGroups(request.config);
  for (OptionGroup& group : more) groups.push_back(std::move(group));
  TEMPER_RETURN_IF_ERROR(ApplySettings(settings, OptionSet(std::move(groups), ForeignNames())));
  TEMPER_RETURN_IF_ERROR(Validate(request.config, purpose));
  if (purpose == Purpose::kTrain && request.config.machine.nprocs > 1) {
    return Unsupported(fmt::format(
        "{}: nprocs {}: ranks are processes, and Train has one; start `temper train` for more, or set threads", kWhere,
        request.config.machine.nprocs));
  }
  return request;
}

}  // namespace temper
