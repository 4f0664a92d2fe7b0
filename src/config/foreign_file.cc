#include "config/foreign_file.h"

#include <fmt/core.h>

#include <algorithm>

#include "config/launch_line.h"
#include "format/json.h"
#include "format/quoted.h"
#include "format/yaml.h"

namespace temper {
namespace {

std::vector<ForeignSetting> SettingsIn(const YamlDocument& document, const std::string& named_file) {
  std::vector<ForeignSetting> settings;
  size_t i = 0;
  for (auto it = document.value.begin(); it != document.value.end(); ++it, ++i) {
    settings.push_back({it.key(), it.value(), document.lines.children[i].line, named_file});
  }
  return settings;
}

// The settings of the file that a launch line names; those of the line go before them.
Status AddRecipe(Env& env, const LaunchLine& line, const std::string& file, ForeignFile& found) {
  const std::string path = FoundNear(env, line.recipe.text, file);
  if (!env.IsFile(path)) {
    return InvalidArgument(
        fmt::format("{} line {}: its recipe {} was not found: start temper import where the script is "
                    "started, or import the recipe itself",
                    file, line.recipe.line, Quoted(line.recipe.text)));
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, kMaxYamlText));
  TEMPER_ASSIGN_OR_RETURN(const YamlDocument document, ParseYaml(text, path, YamlVersion::k11));
  if (!document.value.is_object()) return InvalidArgument(fmt::format("{}: should be lines of 'key: value'", path));
  std::vector<ForeignSetting> settings = SettingsIn(document, path);
  std::erase_if(settings, [&](const ForeignSetting& setting) {
    return std::any_of(line.settings.begin(), line.settings.end(),
                       [&](const ForeignSetting& option) { return option.name == setting.name; });
  });
  found.settings.insert(found.settings.begin(), std::make_move_iterator(settings.begin()),
                        std::make_move_iterator(settings.end()));
  return OkStatus();
}

}  // namespace

std::string FoundNear(Env& env, const std::string& name, const std::string& file) {
  std::string folder;
  for (int up = 0; up < 5; ++up) {
    const std::string path = up == 0 ? name : JoinPath(folder, name);
    if (env.IsFile(path) || env.IsFolder(path)) return path;
    folder = up == 0 ? FolderOf(file) : JoinPath(folder, "..");
  }
  return name;
}

Result<ForeignFile> ReadForeignFile(Env& env, std::string_view text, const std::string& file) {
  const auto document = ParseYaml(text, file, YamlVersion::k11);  // as PyYAML, which all these tools use
  ForeignFile found;
  if (document.ok() && document->value.is_object()) {
    found.settings = SettingsIn(*document, "");
    return found;
  }
  auto line = FindLaunchLine(text, file);
  const bool has_line = line.ok() && (!line->settings.empty() || !line->recipe.text.empty() ||
                                      !line->program.does.empty() || !line->program.other_tool.empty());
  if (!has_line) {
    if (!line.ok() && document.ok()) return line.status();
    if (!document.ok()) return document.status();
    return InvalidArgument(
        fmt::format("{}: neither lines of 'key: value' nor a command with --options was found", file));
  }
  found.settings = line->settings;
  found.program = line->program;
  if (!line->recipe.text.empty()) TEMPER_RETURN_IF_ERROR(AddRecipe(env, *line, file, found));
  return found;
}

}  // namespace temper
