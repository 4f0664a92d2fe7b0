#include "data/template/known_templates.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/edit_distance.h"

namespace temper {

std::string KnownTemplateNames() {
  std::string names;
  for (const KnownTemplate& known : KnownTemplates()) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

Result<TemplateSource> FindTemplate(Env& env, const std::string& name_or_file) {
  const auto& all = KnownTemplates();
  const auto known = std::find_if(all.begin(), all.end(), [&](const auto& t) { return t.name == name_or_file; });
  if (known != all.end()) {
    return TemplateSource{std::string(known->source), fmt::format("chat template {}", known->name)};
  }
  if (env.IsFile(name_or_file)) {
    TEMPER_ASSIGN_OR_RETURN(std::string text, ReadTextFile(env, name_or_file, kMaxChatTemplate));
    return TemplateSource{std::move(text), name_or_file};
  }
  const auto near = std::find_if(all.begin(), all.end(), [&](const auto& t) {
    return name_or_file.size() < 20 && EditDistance(name_or_file, t.name) <= 2;
  });
  return NotFound(fmt::format("chat_template {}: {} Give a file, or one of {}", name_or_file,
                              env.IsFolder(name_or_file) ? "this is a folder."
                              : near != all.end() ? fmt::format("there is no such file; did you mean '{}'?", near->name)
                                                  : "there is no such file, and no template has this name.",
                              KnownTemplateNames()));
}

}  // namespace temper
