#include "config/data_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "config/option_set.h"
#include "config/reading_options.h"
#include "config/yaml_text.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

// With more the samples of an epoch could not be counted in 32 bits for any but the smallest files.
constexpr double kMostPasses = 10'000;

bool IsKey(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

// Where the settings of "PATH:KEY=VALUE,KEY=VALUE" begin (at the colon), or npos.
size_t SettingsAt(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return colon;
  const std::string_view rest = text.substr(colon + 1);
  const size_t equals = std::find_if_not(rest.begin(), rest.end(), IsKey) - rest.begin();
  return equals > 0 && equals < rest.size() && rest[equals] == '=' ? colon : text.npos;
}

using Setting = std::pair<std::string, OrderedJson>;

// Its path and settings; the values are texts.
std::vector<Setting> SettingsOf(std::string_view text) {
  const size_t colon = SettingsAt(text);
  std::vector<Setting> settings = {{"path", std::string(text.substr(0, colon))}};
  if (colon == text.npos) return settings;
  for (std::string_view rest = text.substr(colon + 1);;) {
    const std::string_view setting = rest.substr(0, rest.find(','));
    const std::string_view key = setting.substr(0, setting.find('='));
    const std::string& last = settings.back().first;  // columns=prompt=frage,completion=antwort goes on
    if ((last == "columns" && IsRowField(key)) || (last == "roles" && IsRole(key))) {
      settings.back().second = fmt::format("{},{}", settings.back().second.get<std::string>(), setting);
    } else {
      settings.emplace_back(key, std::string(setting.substr(std::min(key.size() + 1, setting.size()))));
    }
    if (setting.size() == rest.size()) return settings;
    rest.remove_prefix(setting.size() + 1);
  }
}

// What other tools call the settings of a file.
std::vector<ForeignName> NamesOfOthers(bool has_passes) {
  std::vector<ForeignName> foreign = {{"num_samples", "max_samples", ""},
                                      {"samples", "max_samples", ""},
                                      {"limit", "max_samples", ""},
                                      {"max_rows", "max_samples", ""},
                                      {"max_examples", "max_samples", ""},
                                      {"file", "path", ""},
                                      {"name", "path", ""},
                                      {"dataset", "path", ""},
                                      {"data", "path", ""},
                                      {"data_files", "path", ""},
                                      {"type", "", "the format is recognised from the rows"}};
  if (has_passes) {
    for (const char* name : {"weight", "weights", "ratio", "probability", "prob", "interleave_probs", "fraction"}) {
      foreign.push_back({name, "passes",
                         "how often an epoch sees each sample of the file, such as 0.5 or 2 (a row's own \"weight\" "
                         "scales its loss)"});
    }
    for (const char* name : {"repeat", "repeats", "num_repeats", "epochs"}) foreign.push_back({name, "passes", ""});
  } else {
    foreign.push_back({"passes", "", "evaluation sees every sample once"});
    foreign.push_back({"weight", "", "evaluation sees every sample once"});
  }
  return foreign;
}

class SourcesOption {
 public:
  SourcesOption(std::string name, DataSources& target, bool has_passes)
      : name_(std::move(name)), target_(target), has_passes_(has_passes), file_(std::make_shared<File>(has_passes)) {}

  Status Set(const OrderedJson& value, const std::string& where, bool more) const {
    DataSources sources = more ? target_ : DataSources();
    const bool none = value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
    std::set<std::string> paths;  // a run may have many thousands of files
    for (const DataSource& source : sources) paths.insert(source.path);
    if (value.is_array()) {
      for (const OrderedJson& element : value) TEMPER_RETURN_IF_ERROR(Add(element, where, sources, paths));
    } else if (!none) {
      TEMPER_RETURN_IF_ERROR(Add(value, where, sources, paths));
    }
    target_ = std::move(sources);
    return OkStatus();
  }

  std::string AsYaml() const {
    if (target_.empty()) return "null";
    std::vector<std::string> parts;
    for (const DataSource& source : target_) parts.push_back(AsYaml(source));
    return parts.size() == 1 ? parts[0] : fmt::format("[{}]", fmt::join(parts, ", "));
  }

 private:
  // What is read of a file, and the options that set it: these take longer to make than most settings to read.
  struct File {
    explicit File(bool has_passes) : options(Options(source, has_passes)) {}
    DataSource source;
    const OptionSet options;
  };

  // `paths`: of `sources`.
  Status Add(const OrderedJson& element, const std::string& where, DataSources& sources,
             std::set<std::string>& paths) const {
    if (!element.is_string() && !element.is_object()) {
      return InvalidArgument(fmt::format("{}: {} should be a path, a map with a path, or a list of these, but is {}",
                                         where, name_,
                                         element.is_array() ? "a list in a list" : Quoted(DumpJson(element))));
    }
    const std::string* const text = element.is_string() ? &element.get_ref<const std::string&>() : nullptr;
    std::vector<Setting> settings;
    if (text) {
      settings = SettingsOf(*text);
    } else {
      for (auto it = element.begin(); it != element.end(); ++it) settings.emplace_back(it.key(), it.value());
    }
    DataSource& source = file_->source;
    const OptionSet& options = file_->options;
    source = {};
    std::set<const Option*> given;
    for (const auto& [key, value] : settings) {
      const Option* option = options.Find(key);
      if (option == nullptr) {
        const std::string remedy =
            text ? fmt::format(" (for a path that ends so: {{path: {}}})", TextAsYaml(*text)) : "";
        return InvalidArgument(fmt::format("{}: {}: unknown setting {} of a file; {}{}", where, name_, Quoted(key),
                                           options.Advice(key), remedy));
      }
      if (!given.insert(option).second) {
        return InvalidArgument(fmt::format("{}: {}: {} is given twice: remove one", where, name_, option->name));
      }
      TEMPER_RETURN_IF_ERROR(SetFromJson(*option, value, where + ", " + name_));
    }
    if (source.path.empty()) return InvalidArgument(fmt::format("{}: {} has a file without a path", where, name_));
    if (!paths.insert(source.path).second) {
      return InvalidArgument(fmt::format("{}: {} names {} twice: remove one{}", where, name_, Quoted(source.path),
                                         has_passes_ ? ", or give it once with passes=2" : ""));
    }
    sources.push_back(std::move(source));
    return OkStatus();
  }

  static OptionSet Options(DataSource& source, bool has_passes) {
    std::vector<Option> options = {
        {"path", &source.path, ""},    {"max_samples", &source.max_samples, "", {.at_least = 1}},
        ColumnsOption(source.columns), RolesOption(source.roles),
        {"split", &source.split, ""},
    };
    if (has_passes) options.push_back({"passes", &source.passes, "", {.at_most = kMostPasses, .above = 0}});
    static const std::vector<ForeignName> kWithPasses = NamesOfOthers(true), kWithout = NamesOfOthers(false);
    return OptionSet({{"", std::move(options)}}, has_passes ? kWithPasses : kWithout);
  }

  std::string AsYaml(const DataSource& source) const {
    const DataSource plain{.path = source.path};
    if (source == plain && SettingsAt(source.path) == std::string::npos) return TextAsYaml(source.path);
    std::string text = "{path: " + TextAsYaml(source.path);
    if (source.passes != plain.passes) text += ", passes: " + NumberAsYaml(source.passes);
    if (source.max_samples) text += fmt::format(", max_samples: {}", *source.max_samples);
    if (!source.columns.empty()) text += ", columns: " + temper::AsYaml(source.columns);
    if (!source.roles.empty()) text += ", roles: " + temper::AsYaml(source.roles);
    if (!source.split.empty()) text += ", split: " + TextAsYaml(source.split);
    return text + "}";
  }

  const std::string name_;
  DataSources& target_;
  const bool has_passes_;
  const std::shared_ptr<File> file_;
};

}  // namespace

Option DataOption(std::string name, DataSources& sources, std::string help, bool has_passes) {
  const SourcesOption option(name, sources, has_passes);
  return {.name = std::move(name),
          .target = Repeatable{.set = [option](const OrderedJson& value, const std::string& where,
                                               bool more) { return option.Set(value, where, more); },
                               .as_yaml = [option] { return option.AsYaml(); }},
          .help = std::move(help),
          .value_hint = "FILE"};
}

}  // namespace temper
