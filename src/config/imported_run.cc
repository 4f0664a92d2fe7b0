#include "config/imported_run.h"

#include <fmt/core.h>

#include "config/foreign_setting.h"
#include "config/foreign_tools.h"
#include "config/option_yaml.h"

namespace temper {

void WriteRun(const std::string& file, const OptionSet& options, const std::map<std::string, std::string>& notes,
              ImportedRun& run) {
  run.settings = notes.size();
  run.yaml = fmt::format("# From {} ({}), by temper import.\n", OneLine(file), ToString(run.tool));
  const auto list = [&](const char* title, const std::vector<std::string>& sentences) {
    if (sentences.empty()) return;
    run.yaml += fmt::format("#\n# {}:\n", title);
    for (const std::string& sentence : sentences) run.yaml += fmt::format("#   {}\n", OneLine(sentence));
  };
  list("No equivalent", run.lost);
  list("The meaning changes", run.changed);
  list("Not needed", run.needless);
  run.yaml += "\n" + PrintYamlOptions(options, notes, PrintedOptions::kWithNotes);
}

}  // namespace temper
