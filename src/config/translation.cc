#include "config/translation.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "base/check.h"
#include "config/foreign_defaults.h"
#include "config/foreign_tools.h"
#include "config/run_options.h"
#include "format/row_columns.h"

namespace temper {
namespace {

// `yaml`: ValueAsYaml of such an option.
void Restore(const Option& option, const std::string& yaml) {
  const auto value = ParseYamlValue(yaml, "");
  TEMPER_CHECK(value.ok() && SetFromJson(option, *value, "").ok()) << option.name << ": " << yaml;
}

// Whether the option is a number or true or false: what is neither means nothing, in any tool.
bool IsPlain(const Option& option) {
  return std::visit(
      Overloaded{[](bool*) { return true; }, [](int64_t*) { return true; }, [](const NumberOrAuto&) { return true; },
                 [](double*) { return true; }, [](std::optional<int64_t>*) { return true; },
                 [](std::optional<double>*) { return true; }, [](std::optional<Bytes>*) { return true; },
                 [](const auto&) { return false; }},
      option.target);
}

}  // namespace

Translation::Translation(Env& env, const std::string& file, ForeignFile content, const ImportOptions& options)
    : options(RunOptions(config)),
      env_(env),
      file_(file),
      content_(std::move(content)),
      settings_(content_.settings),
      import_(options) {
  result.tool = options.tool;
}

const ForeignSetting* Translation::Given(std::string_view name) const {
  for (const ForeignSetting& setting : settings_) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

bool Translation::IsTrue(std::string_view name) const {
  const ForeignSetting* const setting = Given(name);
  return setting != nullptr && setting->value == true;
}

bool Translation::SaysNothing(const ForeignSetting& setting) const {
  return IsDefault(result.tool, setting.name, setting.value);
}

void Translation::Say(std::vector<std::string>& list, const ForeignSetting& setting, std::string_view why) const {
  list.push_back(why.empty() ? setting.Shown() : fmt::format("{}: {}", setting.Shown(), why));
}

void Translation::Fail(const ForeignSetting& setting, std::string_view why) {
  if (!failed_.ok()) return;
  failed_ = InvalidArgument(fmt::format("{}{}: {}", setting.file.empty() ? file_ + " " : "", setting.Shown(), why));
}

void Translation::Set(std::string_view name, const OrderedJson& value, const ForeignSetting& setting) {
  const Option& option = *options.Find(name);
  const std::string before = ValueAsYaml(option);
  const bool given = notes_.contains(option.name);
  const Status set = SetFromJson(option, value, "X");
  if (!set.ok()) {
    const std::string why = set.message().substr(3);  // behind "X: "
    // A number that is not in our range may mean something elsewhere.
    if (IsPlain(option) && !value.is_number() && !value.is_boolean()) return Fail(setting, why);
    const Choice* const choice = std::get_if<Choice>(&option.target);
    if (choice != nullptr && value.is_string()) {
      const std::string nearest = NearestName(value.get<std::string>(), {choice->names.begin(), choice->names.end()});
      if (!nearest.empty()) return Fail(setting, fmt::format("{}; did you mean {}?", why, nearest));
    }
    return Lost(setting, why);
  }
  if (given && ValueAsYaml(option) != before) {
    Restore(option, before);
    return Changed(setting,
                   fmt::format("{} sets {}, too, to {}, which counts", notes_[option.name], option.name, before));
  }
  if (!given) notes_[option.name] = setting.name == option.name ? "" : setting.name;
}

void Translation::SetDefault(const std::string& name, const std::string& value, const std::string& reason) {
  const Option& option = *options.Find(name);
  const std::string before = ValueAsYaml(option);
  TEMPER_CHECK(SetFromText(option, value, "").ok());
  if (ValueAsYaml(option) == before) return;
  notes_[name] = reason.empty() ? fmt::format("the default of {}", ToString(result.tool)) : reason;
}

bool Translation::SetTemplateVariable(const ForeignSetting& setting) {
  std::string& text = config.data.chat_template_kwargs.text;
  OrderedJson variables = OrderedJson::object();
  if (!text.empty()) variables = *ParseYamlValue(text, file_);  // as DumpJson or Set wrote it
  if (variables.contains(setting.name)) return false;
  variables[setting.name] = setting.value;
  text = DumpJson(variables);
  std::string& note = notes_["chat_template_kwargs"];
  note += (note.empty() ? "" : ", ") + setting.name;
  return true;
}

void Translation::Forget(const std::string& name) {
  notes_.erase(name);
  RunConfig fresh;
  const OptionSet defaults = RunOptions(fresh);
  Restore(*options.Find(name), ValueAsYaml(*defaults.Find(name)));
}

void Translation::ForgetFor(const std::string& reason, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!notes_[name].starts_with("the default")) {
      const std::string theirs = notes_[name].empty() ? "" : fmt::format(" ({})", notes_[name]);
      result.needless.push_back(fmt::format("{}{}: {}", name, theirs, reason));
    }
    Forget(name);
  }
}

std::string Translation::TranslatedIn(const std::string& message) const {
  std::string text;
  for (const auto& [name, note] : notes_) {
    if (note.empty() || note.starts_with("the default") || message.find(name) == std::string::npos) continue;
    text += fmt::format("{}{} is {}", text.empty() ? " (" : ", ", name, note);
  }
  return text.empty() ? "" : text + ")";
}

ImportedRun Translation::Written() {
  WriteRun(file_, options, notes_, result);
  return std::move(result);
}

}  // namespace temper
